import { Channel } from "@heddle/base/channel";
import type { EngineEvent, EngineFailure } from "@heddle/contracts/engine";

/** Events that a worker may send ahead of the reader; the bound of a call's memory on the master. */
export const eventWindow = 256;
/** Consumption is told to the worker in lots of this size. */
const grantLot = 64;

/** What a call needs of the stream that carries it. */
export interface CallCarrier {
  grant(id: number, events: number): void;
  /** The reader has left or the signal fired: the worker is to stop. */
  cancel(id: number): void;
}

/**
 * One request on its worker's stream, as the reader sees it: its events in order, ending with
 * exactly one `done` or `failed`, whatever happens to the worker. Leaving the iteration cancels.
 */
export class SessionCall implements AsyncIterable<EngineEvent> {
  readonly id: number;
  readonly node: string;
  readonly #carrier: CallCarrier;
  /** One place is kept for a `failed` that is made here. */
  readonly #events = new Channel<EngineEvent>(eventWindow + 1);
  readonly #inner = this.#events[Symbol.asyncIterator]();
  readonly #signal: AbortSignal;
  readonly #onAbort = () => this.#cancel("the caller gave the request up");
  #consumed = 0;
  #isHandedOut = false;

  constructor(id: number, node: string, carrier: CallCarrier, signal: AbortSignal) {
    this.id = id;
    this.node = node;
    this.#carrier = carrier;
    this.#signal = signal;
    if (signal.aborted) queueMicrotask(this.#onAbort);
    else signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  get ended(): boolean {
    return this.#events.ended;
  }

  /** An event from the worker, which holds to the window; one that does not is cut off. */
  deliver(event: EngineEvent): void {
    if (this.ended) return;
    if (this.#events.size >= eventWindow) {
      const message = `worker ${this.node} sent more events than it was granted`;
      this.fail({ code: "server_error", message });
      this.#carrier.cancel(this.id);
      return;
    }
    this.#events.push(event);
    if (event.type === "done" || event.type === "failed") this.#close();
  }

  /** Ends the call from this side; what is buffered is still read first. */
  fail(error: EngineFailure): void {
    if (this.ended) return;
    this.#events.push({ type: "failed", id: this.id, error });
    this.#close();
  }

  /** Ends the call because of its deadline, which the worker ought to have done. */
  expire(): void {
    if (this.ended) return;
    const message = `worker ${this.node} did not answer before the deadline`;
    this.fail({ code: "deadline_exceeded", message });
    this.#carrier.cancel(this.id);
  }

  [Symbol.asyncIterator](): AsyncIterator<EngineEvent> {
    return {
      next: () => {
        // Who asks for the next has taken the one before: no promise of our own is needed for that.
        if (this.#isHandedOut) this.#onConsumed();
        this.#isHandedOut = true;
        return this.#inner.next();
      },
      return: async () => {
        this.#cancel("the reader left");
        return { value: undefined, done: true };
      },
    };
  }

  #onConsumed(): void {
    this.#consumed += 1;
    if (this.#consumed < grantLot || this.ended) return;
    this.#carrier.grant(this.id, this.#consumed);
    this.#consumed = 0;
  }

  #cancel(message: string): void {
    if (this.ended) return;
    this.fail({ code: "cancelled", message });
    this.#carrier.cancel(this.id);
  }

  #close(): void {
    this.#events.close();
    this.#signal.removeEventListener("abort", this.#onAbort);
  }
}
