import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { FollowedCluster } from "@heddle/rpc/node/followed-cluster";
import { readJson, writeJson } from "../records/task-directory.ts";
import { bootClock, Lease } from "./lease.ts";
import type { GuardOrders, LeaseGuard } from "./lease-guard.ts";

const FILE = "lease.json";
/** How often the lease is looked at while tasks hang on it; it also is at each thing that needs it. */
const checkMs = 100;

interface Kept {
  readonly boot: string;
  readonly expiresAtMs: number;
  readonly term: number;
  /** Whose term it is; a file of an earlier version does not tell, so that its term says nothing. */
  readonly cluster?: string | undefined;
}

/**
 * The lease of this worker and the highest term it has heard, kept over its restarts. Whoever asks
 * whether it is live makes sure thereby that the tasks of a lease that is over have been ended.
 */
export class LeaseKeeper {
  readonly #directory: string;
  readonly #boot: string;
  readonly #lease: Lease;
  readonly #followed: FollowedCluster;
  readonly #listeners = new Set<() => void>();
  #guard: LeaseGuard | undefined;
  #isNeeded: () => boolean = () => false;
  #timer: NodeJS.Timeout | undefined;
  #term: number;
  #cluster: string | undefined;
  #wasLive: boolean;
  #saving: Promise<void> = Promise.resolve();

  private constructor(directory: string, followed: FollowedCluster, kept: Kept | undefined) {
    const boot = bootId();
    this.#directory = directory;
    this.#followed = followed;
    this.#boot = boot;
    // The clock began anew when the machine did, and no task has outlived that.
    this.#lease = new Lease(bootClock, kept?.boot === boot ? kept.expiresAtMs : undefined);
    this.#term = kept?.cluster === undefined ? 0 : kept.term;
    this.#cluster = kept?.cluster;
    this.#wasLive = this.#lease.isLive;
    followed.onChange(() => this.#leave());
    this.#leave();
  }

  static async open(directory: string, followed: FollowedCluster): Promise<LeaseKeeper> {
    const kept = (await readJson(directory, FILE)) as Kept | undefined;
    // Files of earlier versions of this worker know alone which cluster that was.
    if (followed.id === undefined && kept?.cluster) await followed.follow(kept.cluster);
    return new LeaseKeeper(directory, followed, kept);
  }

  get isLive(): boolean {
    const isLive = this.#lease.isLive;
    if (this.#wasLive && !isLive) {
      this.#wasLive = false;
      for (const listener of this.#listeners) listener();
    }
    return isLive;
  }

  get renewEveryMs(): number {
    return this.#lease.renewEveryMs;
  }

  /** What the guard of this lease must know of it. */
  get guardOrders(): Pick<GuardOrders, "leaseFile" | "boot"> {
    return { leaseFile: join(this.#directory, FILE), boot: this.#boot };
  }

  /** From now on the guard ends what hangs on the lease where this process cannot. */
  guardBy(guard: LeaseGuard): void {
    this.#guard = guard;
    if (this.#timer) guard.guard(this.#lease.expiresAtMs);
  }

  onExpired(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Looks at the lease from now on, until nothing hangs on it: an idle worker is not woken. */
  watchWhile(isNeeded: () => boolean): void {
    this.#isNeeded = isNeeded;
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#look(), checkMs).unref();
    this.#guard?.guard(this.#lease.expiresAtMs);
  }

  #look(): void {
    void this.isLive;
    if (this.#isNeeded()) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#guard?.end();
  }

  /**
   * Throws `precondition_failed` for a leader of a term that is over, or of an incarnation of the cluster
   * that is. Terms of two clusters say nothing of each other.
   */
  async begin(cluster: string, term: number, leaseMs: number): Promise<void> {
    await this.#followed.follow(cluster);
    if (term < this.#term) {
      const message = `a leader of term ${this.#term} has been heard here: term ${term} is over`;
      throw new AppError("precondition_failed", message);
    }
    this.#lease.begin(leaseMs);
    if (term === this.#term && cluster === this.#cluster) return;
    this.#term = term;
    this.#cluster = cluster;
    await this.#save();
  }

  /** The lease and the term of the cluster before are over, and so are its tasks. */
  #leave(): void {
    const cluster = this.#followed.id ?? "";
    if (this.#cluster === undefined || this.#cluster === cluster) return;
    this.#lease.revoke();
    // Ends the tasks before the new leader hears of any.
    void this.isLive;
    this.#cluster = cluster;
    this.#term = 0;
  }

  ask(): number {
    return this.#lease.ask();
  }

  async renew(request: number): Promise<void> {
    // What was killed stays so, but its death comes before the new lease.
    void this.isLive;
    this.#lease.renew(request);
    this.#wasLive = this.#lease.isLive;
    if (this.#timer) this.#guard?.guard(this.#lease.expiresAtMs);
    // On a disk that takes nothing the lease holds for this process alone: a later one ends the tasks.
    await this.#save().catch(() => {});
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#guard?.end();
    await this.#saving;
  }

  #save(): Promise<void> {
    const write = () =>
      writeJson(this.#directory, FILE, {
        boot: this.#boot,
        expiresAtMs: this.#lease.expiresAtMs,
        term: this.#term,
        cluster: this.#cluster,
      } satisfies Kept);
    this.#saving = this.#saving.then(write, write);
    return this.#saving;
  }
}

function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return "unknown"; // Without it, the time since the machine's start is all there is to go by.
  }
}
