import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { Inject } from "@nestjs/common";
import { NODE_DIRECTORY, type NodeDirectory } from "../../nodes/node-directory.ts";

/** Lines of all batches that run on this master at once. */
const MAX_LINES = 64;
/** The share of a model's slots that batches use: the others are free for callers at once. */
const SHARE = 0.5;
const POLL_MS = 100;

/** Lets lines of batches run beside callers: few of a model, and fewer while calls wait for it. */
export class BatchPace {
  readonly #directory: NodeDirectory;
  /** Running lines by deployment; the empty name is for what no worker runs. */
  readonly #running = new Map<string, number>();
  readonly #waiting = new Set<AbortController>();
  #total = 0;

  constructor(@Inject(NODE_DIRECTORY) directory: NodeDirectory) {
    this.#directory = directory;
  }

  /** Resolves when a line may run; returns the function that ends it. Rejects with the signal. */
  async enter(deployment: string | undefined, signal: AbortSignal): Promise<() => void> {
    const name = deployment ?? "";
    signal.throwIfAborted();
    while (!this.#hasRoom(name)) {
      await this.#awaitChange(signal);
      signal.throwIfAborted();
    }
    this.#total++;
    this.#running.set(name, this.#of(name) + 1);
    return () => this.#leave(name);
  }

  #hasRoom(name: string): boolean {
    if (this.#total >= MAX_LINES) return false;
    return name === "" || this.#of(name) < this.#roomOf(name);
  }

  /** One line runs in any case: it goes to the queue, behind all callers. */
  #roomOf(deployment: string): number {
    const loads = this.#directory
      .replicasOf(deployment)
      .flatMap(({ phase, load }) => (phase === "ready" ? [load] : []));
    if (loads.some(({ waiting }) => waiting > 0)) return 1;
    const slots = loads.reduce((sum, { maxSequences }) => sum + maxSequences, 0);
    return Math.max(1, Math.floor(slots * SHARE));
  }

  async #awaitChange(signal: AbortSignal): Promise<void> {
    const wake = new AbortController();
    const onAbort = () => wake.abort();
    this.#waiting.add(wake);
    signal.addEventListener("abort", onAbort, { once: true });
    await abortableDelay(POLL_MS, wake.signal);
    signal.removeEventListener("abort", onAbort);
    this.#waiting.delete(wake);
  }

  #leave(name: string): void {
    this.#total--;
    this.#running.set(name, this.#of(name) - 1);
    if (this.#of(name) === 0) this.#running.delete(name);
    for (const wake of this.#waiting) wake.abort();
  }

  #of(name: string): number {
    return this.#running.get(name) ?? 0;
  }
}
