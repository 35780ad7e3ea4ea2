import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Backoff } from "@heddle/base/backoff";
import { recordLeaseGuard } from "@heddle/node-agent/lease-guard-record";
import { freshScan } from "../executors/process-scan.ts";
import { GUARD_VARIABLE, signalProcess } from "../executors/process-tree.ts";

/** The back-off for restarts of a killed guard. */
const restart = { baseMs: 100, maxMs: 5_000 };

const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const program = fileURLToPath(new URL(`./lease-guard-main${extension}`, import.meta.url));

/** The input of a guard. */
export interface GuardOrders {
  readonly nodeId: string;
  readonly boot: string;
  readonly dataDirectory: string;
  /** The file of the worker's lease, kept over restarts. */
  readonly leaseFile: string;
  /** The branch of cgroups that holds all tasks; empty where there is none. */
  readonly cgroup: string;
  /** The container CLI; empty where there is none. */
  readonly containerCli: string;
}

/** The line that ends a guard, in place of the next expiry. */
export const GUARD_END = "end";

/**
 * A process that ends the worker's tasks when the lease has expired, even if the worker was killed
 * or stopped. It receives each renewal; after the worker's end it reads the lease's file.
 */
export class LeaseGuard {
  readonly #orders: GuardOrders;
  readonly #backoff = new Backoff(restart);
  #child: ChildProcess | undefined;
  #restarting: NodeJS.Timeout | undefined;
  #expiresAtMs: number | undefined;

  constructor(orders: GuardOrders) {
    this.#orders = orders;
  }

  /** Starts to guard, or extends the expiry, in milliseconds of the boot clock. */
  guard(expiresAtMs: number): void {
    this.#expiresAtMs = expiresAtMs;
    if (this.#child) this.#child.stdin?.write(`${expiresAtMs}\n`);
    else if (!this.#restarting) this.#start();
  }

  /** No task depends on the lease any more. */
  end(): void {
    this.#expiresAtMs = undefined;
    clearTimeout(this.#restarting);
    this.#restarting = undefined;
    this.#child?.stdin?.end(`${GUARD_END}\n`);
    this.#child = undefined;
  }

  #start(): void {
    const child = spawn(
      process.execPath,
      ["--max-old-space-size=64", program, JSON.stringify(this.#orders)],
      {
        cwd: "/",
        detached: true,
        stdio: ["pipe", "ignore", "ignore"],
        env: { PATH: process.env["PATH"], [GUARD_VARIABLE]: this.#orders.nodeId },
      },
    );
    this.#child = child;
    this.#record(child);
    child.unref();
    (child.stdin as { unref?(): void } | null)?.unref?.();
    child.stdin?.on("error", () => undefined);
    child.once("spawn", () => void this.#endOlder(child));
    child.once("error", () => this.#onEnd(child));
    child.once("exit", () => this.#onEnd(child));
    child.stdin?.write(`${this.#expiresAtMs}\n`);
  }

  /** Guards of an earlier process of this worker have an older expiry. */
  async #endOlder(child: ChildProcess): Promise<void> {
    for (const { pid, mark } of (await freshScan()).marked(GUARD_VARIABLE)) {
      // Only while this one guards: a later one has taken over otherwise.
      if (this.#child !== child) return;
      if (mark === this.#orders.nodeId && pid !== child.pid) signalProcess(pid, "SIGKILL");
    }
  }

  /** At once, so that a guard of a worker that is killed next is found. */
  #record({ pid }: ChildProcess): void {
    try {
      if (pid !== undefined) recordLeaseGuard(this.#orders.dataDirectory, pid);
    } catch {
      // The disk is full: the lease still ends the tasks.
    }
  }

  #onEnd(child: ChildProcess): void {
    if (this.#child !== child) return;
    this.#child = undefined;
    if (this.#expiresAtMs === undefined) return;
    this.#restarting = setTimeout(() => {
      this.#restarting = undefined;
      if (this.#expiresAtMs !== undefined) this.#start();
    }, this.#backoff.nextMs()).unref();
  }
}
