import { AppError, toAppError } from "@heddle/base/errors";
import type { ControlPlane } from "../control-plane/control-plane.ts";

/** The most runs of one kind on this master. */
const MAX_RUNNING = 1_024;

/** A call that runs on without its client. */
export interface DetachedRun {
  readonly abort: AbortController;
  /** Its end is being stored: what others change now comes too late. */
  isEnding: boolean;
}

/**
 * The calls that run on this master without their clients, by the id of the document that is
 * stored of each. Any master may cancel or delete one: here its document's change ends the run.
 */
export class DetachedRuns<Run extends DetachedRun> {
  readonly #noun: "completion" | "response";
  readonly #running = new Map<string, Run>();
  readonly close: () => void;

  constructor(control: Pick<ControlPlane, "onApplied">, noun: "completion" | "response") {
    this.#noun = noun;
    this.close = control.onApplied((command) => {
      if (command?.type === "document.put") this.#yieldTo(command.document.id);
      else if (command?.type === "document.delete") this.#yieldTo(command.id);
    });
  }

  expectRoom(): void {
    if (this.#running.size < MAX_RUNNING) return;
    const message = `This master runs ${MAX_RUNNING} ${this.#noun}s without clients already. Try again shortly.`;
    throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
  }

  get(id: string): Run | undefined {
    return this.#running.get(id);
  }

  add(id: string, run: Run): void {
    this.#running.set(id, run);
  }

  delete(id: string): void {
    this.#running.delete(id);
  }

  cancelled(): AppError {
    return new AppError("cancelled", `The ${this.#noun} was cancelled.`);
  }

  #yieldTo(id: string): void {
    const run = this.#running.get(id);
    if (run && !run.isEnding) run.abort.abort(this.cancelled());
  }
}

/** What `save` stores, or what another one has stored meanwhile. */
export async function savedOrNewer<T>(save: () => Promise<T>, newer: () => Promise<T>): Promise<T> {
  try {
    return await save();
  } catch (thrown) {
    if (toAppError(thrown).code !== "precondition_failed") throw thrown;
    return newer();
  }
}
