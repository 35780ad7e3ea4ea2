import { createHmac, randomBytes, randomUUID } from "node:crypto";
import {
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { UserRange } from "@heddle/rpc/node/offer-flags";
import { usersOfProcesses, usersOfTasks } from "../executors/process-tree.ts";

/** Free on usual systems: above the ranges of systemd and containers, and below 2^31. */
const wideRange: UserRange = { first: 1_900_000_000, last: 1_900_999_999 };
/** Within the 65,536 ids that a container without the host's users usually has. */
const narrowRange: UserRange = { first: 61_184, last: 65_519 };
/** Beside the jobs' folders of checkpoints; no task reads it. */
const keyFile = ".task-users-key";
const keyBytes = 32;

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
 * follows from the job's id and a key that lies beside the checkpoints, so that all workers that share them
 * choose the same and who submits a job, with whatever id, cannot choose.
 */
export class TaskUsers {
  readonly #range: UserRange;
  readonly #root: string;
  readonly #jobs = new Map<string, { readonly id: number; tasks: number }>();

  /** `root`: of the checkpoints of all jobs. */
  constructor(range: UserRange, root: string) {
    this.#range = range;
    this.#root = root;
  }

  /** Whether its users are the tasks' alone; a single configured user may have other programs. */
  get isExclusive(): boolean {
    return this.#range.last > this.#range.first;
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
    if (size === 1) return first;
    mkdirSync(this.#root, { recursive: true, mode: 0o700 });
    const taken = this.#taken(jobId);
    for (const id of used) taken.add(id);
    const start = createHmac("sha256", keyAt(this.#root)).update(jobId).digest().readUInt32LE();
    // In a range with fewer ids than jobs several jobs share one.
    for (let step = 0; step < size && step <= taken.size; step++) {
      const id = first + ((start + step) % size);
      if (!taken.has(id)) return id;
    }
    return first + (start % size);
  }

  /** Of other jobs: users of tasks on this machine, of what they left running, and of their checkpoints. */
  #taken(jobId: string): Set<number> {
    const taken = usersOfProcesses();
    const jobOf = (mark: string) => mark.split("/")[1];
    for (const { user, mark } of usersOfTasks()) {
      if (jobOf(mark) === jobId) taken.delete(user);
      else taken.add(user);
    }
    for (const name of readdirSync(this.#root)) {
      const found = lstatSync(join(this.#root, name), { throwIfNoEntry: false });
      if (found?.isDirectory() && name !== jobId) taken.add(found.uid);
    }
    return taken;
  }
}

/** Made by the first worker that needs it. */
function keyAt(root: string): Buffer {
  const path = join(root, keyFile);
  const draft = `${path}.${randomUUID()}`;
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  writeFileSync(draft, randomBytes(keyBytes), { flag: "wx", mode: 0o600 });
  try {
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  return readFileSync(path);
}
