import { createHmac, randomBytes, randomUUID } from "node:crypto";
import {
  existsSync,
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
import type { UserRange } from "@heddle/node-agent/offer-flags";
import { ProcessScan } from "../executors/process-scan.ts";
import { type Claims, UserClaims } from "./user-claims.ts";

/** Free on usual systems: above the ranges of systemd and containers, and below 2^31. */
const wideRange: UserRange = { first: 1_900_000_000, last: 1_900_999_999 };
/** Within the 65,536 ids that a container without the host's users usually has. */
const narrowRange: UserRange = { first: 61_184, last: 65_519 };
/** Beside the jobs' folders of checkpoints; no task reads it. */
const KEY_FILE = ".task-users-key";
const KEY_BYTES = 32;

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
 * follows from the job's id and a key beside the checkpoints. So workers that share them choose the same
 * one, and the submitter of a job cannot choose.
 */
export class TaskUsers {
  readonly #range: UserRange;
  readonly #root: string;
  readonly #jobs = new Map<string, { readonly id: number; tasks: number }>();
  #claims: UserClaims | undefined;

  /** `root`: of the checkpoints of all jobs. `claims`: of this worker, absent for the machine's. */
  constructor(range: UserRange, root: string, claims?: UserClaims) {
    this.#range = range;
    this.#root = root;
    this.#claims = claims;
  }

  /** Whether its users are the tasks' alone; a single configured user may have other programs. */
  get isExclusive(): boolean {
    return this.#range.last > this.#range.first;
  }

  /** Whether a user is still to be chosen for the job, which depends on the machine's processes. */
  isToChoose(jobId: string): boolean {
    return this.isExclusive && !this.#jobs.has(jobId);
  }

  /**
   * `directory`: of the job's checkpoints, whose owner stays. `scan`: a recent one, absent for one of
   * now. To be released once for each call.
   */
  acquire(jobId: string, directory: string, scan?: ProcessScan): number {
    const known = this.#jobs.get(jobId);
    const id = known?.id ?? this.#claim(jobId, directory, scan);
    this.#jobs.set(jobId, { id, tasks: (known?.tasks ?? 0) + 1 });
    return id;
  }

  release(jobId: string): void {
    const known = this.#jobs.get(jobId);
    if (!known) return;
    known.tasks -= 1;
    if (known.tasks > 0) return;
    this.#jobs.delete(jobId);
    try {
      this.#claims?.update(() => ({ result: undefined, jobs: this.#ids() }));
    } catch {
      // The claim ends with this worker's next one.
    }
  }

  #ids(): Record<string, number> {
    return Object.fromEntries([...this.#jobs].map(([jobId, { id }]) => [jobId, id]));
  }

  /** Other workers of this machine that choose in the same moment wait for this choice. */
  #claim(jobId: string, directory: string, scan?: ProcessScan): number {
    if (!this.isExclusive) return this.#range.first;
    mkdirSync(this.#root, { recursive: true, mode: 0o700 });
    this.#claims ??= new UserClaims(this.#root);
    return this.#claims.update((others) => {
      const result = this.#choose(jobId, directory, others, scan);
      return { result, jobs: { ...this.#ids(), [jobId]: result } };
    });
  }

  #choose(jobId: string, directory: string, others: readonly Claims[], scan?: ProcessScan): number {
    const { first, last } = this.#range;
    const used = new Set([...this.#jobs.values()].map(({ id }) => id));
    const owner = statSync(directory, { throwIfNoEntry: false })?.uid ?? -1;
    if (owner >= first && owner <= last && !used.has(owner)) return owner;
    const shared = others.find(({ root }) => root === this.#root)?.jobs[jobId];
    if (shared !== undefined && !used.has(shared)) return shared;
    const taken = this.#taken(jobId, others, scan ?? ProcessScan.now());
    for (const id of used) taken.add(id);
    const size = last - first + 1;
    const start = createHmac("sha256", keyAt(this.#root)).update(jobId).digest().readUInt32LE();
    // In a range with fewer ids than jobs several jobs share one.
    for (let step = 0; step < size && step <= taken.size; step++) {
      const id = first + ((start + step) % size);
      if (!taken.has(id)) return id;
    }
    return first + (start % size);
  }

  /** Users of other jobs: of their tasks on this machine, of their strays, and of their checkpoints. */
  #taken(jobId: string, others: readonly Claims[], scan: ProcessScan): Set<number> {
    const taken = scan.users();
    const jobOf = (mark: string) => mark.split("/")[1];
    for (const { user, mark } of scan.usersOfTasks()) {
      if (jobOf(mark) === jobId) taken.delete(user);
      else taken.add(user);
    }
    for (const { jobs } of others) {
      for (const [job, id] of Object.entries(jobs)) if (job !== jobId) taken.add(id);
    }
    for (const root of new Set([this.#root, ...others.map((each) => each.root)])) {
      for (const id of ownersBelow(root, jobId)) taken.add(id);
    }
    return taken;
  }
}

/** The owners of the checkpoints of other jobs; none where another worker's root was removed. */
function ownersBelow(root: string, jobId: string): number[] {
  if (!existsSync(root)) return [];
  const entries = readdirSync(root, { withFileTypes: true });
  const folders = entries.filter((each) => each.isDirectory() && each.name !== jobId);
  return folders.flatMap(
    ({ name }) => lstatSync(join(root, name), { throwIfNoEntry: false })?.uid ?? [],
  );
}

/** Made by the first worker that needs it. */
function keyAt(root: string): Buffer {
  const path = join(root, KEY_FILE);
  const draft = `${path}.${randomUUID()}`;
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  writeFileSync(draft, randomBytes(KEY_BYTES), { flag: "wx", mode: 0o600 });
  try {
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft);
  }
  return readFileSync(path);
}
