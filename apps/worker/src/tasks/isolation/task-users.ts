import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { UserRange } from "@heddle/rpc/node/offer-flags";

/** Free on usual systems: above the ranges of systemd and containers, and below 2^31. */
const wideRange: UserRange = { first: 1_900_000_000, last: 1_900_999_999 };
/** Within the 65,536 ids that a container without the host's users usually has. */
const narrowRange: UserRange = { first: 61_184, last: 65_519 };

/** The first of the default ranges whose ids exist here. */
export function defaultRange(): UserRange | undefined {
  return [wideRange, narrowRange].find(({ first, last }) =>
    mappedIds().some((ids) => ids.first <= first && last <= ids.last),
  );
}

function mappedIds(): UserRange[] {
  try {
    const lines = readFileSync("/proc/self/uid_map", "utf8").trim().split("\n");
    return lines.map((line) => {
      const [first = 0, , count = 0] = line.trim().split(/\s+/).map(Number);
      return { first, last: first + count - 1 };
    });
  } catch {
    return []; // No Linux.
  }
}

/**
 * The users of jobs. All tasks of a job have the same one, since they share the job's checkpoints. It
 * follows from the job's id, so that all workers that share checkpoints choose the same.
 */
export class TaskUsers {
  readonly #range: UserRange;
  readonly #jobs = new Map<string, { readonly id: number; tasks: number }>();

  constructor(range: UserRange) {
    this.#range = range;
  }

  /** `directory`: of the job's checkpoints, whose owner stays. To be released once for each call. */
  acquire(jobId: string, directory: string): number {
    const known = this.#jobs.get(jobId);
    const id = known?.id ?? this.#choose(jobId, directory);
    this.#jobs.set(jobId, { id, tasks: (known?.tasks ?? 0) + 1 });
    return id;
  }

  release(jobId: string): void {
    const known = this.#jobs.get(jobId);
    if (!known) return;
    known.tasks -= 1;
    if (known.tasks === 0) this.#jobs.delete(jobId);
  }

  #choose(jobId: string, directory: string): number {
    const { first, last } = this.#range;
    const used = new Set([...this.#jobs.values()].map(({ id }) => id));
    const owner = statSync(directory, { throwIfNoEntry: false })?.uid ?? -1;
    if (owner >= first && owner <= last && !used.has(owner)) return owner;
    const size = last - first + 1;
    const start = createHash("sha256").update(jobId).digest().readUInt32LE() % size;
    // In a range with fewer ids than jobs several jobs share one.
    for (let step = 0; step < size && step <= used.size; step++) {
      const id = first + ((start + step) % size);
      if (!used.has(id)) return id;
    }
    return first + start;
  }
}
