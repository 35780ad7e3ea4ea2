import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError } from "@heddle/base/errors";
import { bootId } from "@heddle/base/process-alive";
import type { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { readJson, writeJson } from "../../records/task-directory.ts";
import { bootClock, Lease } from "./lease.ts";
import type { GuardOrders, LeaseGuard } from "./lease-guard.ts";

export const LEASE_FILE = "lease.json";
/** How often the lease is checked while tasks depend on it, besides each use. */
const CHECK_MS = 100;

interface Kept {
  readonly boot: string;
  readonly expiresAtMs: number;
  readonly term: number;
  /** The cluster of the term; absent in files of earlier versions, whose term is ignored. */
  readonly cluster?: string | undefined;
}

/**
 * The worker's lease and the highest term it has received, kept over restarts. A check of `isLive`
 * also ends the tasks of an expired lease.
 */
export class LeaseKeeper {
  readonly #directory: string;
  readonly #boot: string;
  readonly #lease: Lease;
  readonly #followed: FollowedCluster;
  readonly #listeners = new Set<() => void>();
  #guard: LeaseGuard | undefined;
  #copies: string | undefined;
  #isNeeded: () => boolean = () => false;
  #timer: NodeJS.Timeout | undefined;
  #term: number;
  #cluster: string | undefined;
  #wasLive: boolean;
  readonly #saves = new SerialQueue();

  private constructor(directory: string, followed: FollowedCluster, kept: Kept | undefined) {
    const boot = bootId();
    this.#directory = directory;
    this.#followed = followed;
    this.#boot = boot;
    // A reboot restarts the clock, and no task has outlived it.
    this.#lease = new Lease(bootClock, kept?.boot === boot ? kept.expiresAtMs : undefined);
    this.#term = kept?.cluster === undefined ? 0 : kept.term;
    this.#cluster = kept?.cluster;
    this.#wasLive = this.#lease.isLive;
    followed.onChange(() => this.#leave());
    this.#leave();
  }

  static async open(directory: string, followed: FollowedCluster): Promise<LeaseKeeper> {
    const kept = (await readJson(directory, LEASE_FILE)) as Kept | undefined;
    // Only files of earlier versions of this worker know which cluster that was.
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

  /** The guard's input about this lease. */
  get guardOrders(): Pick<GuardOrders, "dataDirectory" | "leaseFile" | "boot"> {
    const leaseFile = join(this.#directory, LEASE_FILE);
    return { dataDirectory: this.#directory, leaseFile, boot: this.#boot };
  }

  /** From now on the guard enforces the lease where this process cannot. */
  guardBy(guard: LeaseGuard): void {
    this.#guard = guard;
    if (this.#timer) guard.guard(this.#lease.expiresAtMs);
  }

  /** Also writes it into this folder, for tasks that watch it themselves. */
  async copyTo(folder: string): Promise<void> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    this.#copies = folder;
    await this.#save();
  }

  onExpired(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Checks the lease until no task depends on it, so that an idle worker is not woken. */
  watchWhile(isNeeded: () => boolean): void {
    this.#isNeeded = isNeeded;
    if (this.#timer) return;
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref();
    this.#guard?.guard(this.#lease.expiresAtMs);
  }

  #check(): void {
    void this.isLive;
    if (this.#isNeeded()) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#guard?.end();
  }

  /**
   * Throws `precondition_failed` for a leader of an earlier term, or of an earlier incarnation of
   * the cluster. Terms of two clusters are not comparable.
   */
  async begin(cluster: string, term: number, leaseMs: number): Promise<void> {
    await this.#followed.follow(cluster);
    if (term < this.#term) {
      const message = `a leader of term ${this.#term} is known here: term ${term} has ended`;
      throw new AppError("precondition_failed", message);
    }
    this.#lease.begin(leaseMs);
    if (term === this.#term && cluster === this.#cluster) return;
    this.#term = term;
    this.#cluster = cluster;
    await this.#save();
  }

  /** The lease and the term of the earlier cluster end, and so do its tasks. */
  #leave(): void {
    const cluster = this.#followed.id ?? "";
    if (this.#cluster === undefined || this.#cluster === cluster) return;
    this.#lease.revoke();
    // Ends the tasks before they are reported to the new leader.
    void this.isLive;
    this.#cluster = cluster;
    this.#term = 0;
  }

  ask(): number {
    return this.#lease.ask();
  }

  async renew(request: number): Promise<void> {
    // Ends the tasks of an expired lease before the new lease begins.
    void this.isLive;
    this.#lease.renew(request);
    this.#wasLive = this.#lease.isLive;
    if (this.#timer) this.#guard?.guard(this.#lease.expiresAtMs);
    // If the disk refuses, the lease holds for this process only: a later one ends the tasks.
    await this.#save().catch(() => {});
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#guard?.end();
    await this.#saves.idle();
  }

  #save(): Promise<void> {
    return this.#saves.run(async () => {
      const kept: Kept = {
        boot: this.#boot,
        expiresAtMs: this.#lease.expiresAtMs,
        term: this.#term,
        cluster: this.#cluster,
      };
      await writeJson(this.#directory, LEASE_FILE, kept);
      if (this.#copies !== undefined) await writeJson(this.#copies, LEASE_FILE, kept);
    });
  }
}
