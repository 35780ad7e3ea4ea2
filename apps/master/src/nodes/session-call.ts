import { Channel } from "@heddle/base/channel";
import type { EngineEvent, EngineFailure } from "@heddle/contracts/engine";

/**
 * Flow-control window: events that a worker may send ahead of the reader, which bounds a call's
 * memory.
 */
export const EVENT_WINDOW = 256;
/** Consumption is reported to the worker in batches of this size. */
const GRANT_LOT = 64;

/** What a call needs of its stream. */
export interface CallCarrier {
  grant(id: number, events: number): void;
  /** The reader has left or the signal fired: the worker must stop. */
  cancel(id: number): void;
}

/**
 * One request on its worker's stream, as its reader sees it: events in order, then exactly one
 * `done` or `failed`, whatever happens to the worker. Leaving the iteration cancels.
 */
export class SessionCall implements AsyncIterable<EngineEvent> {
  readonly id: number;
  readonly node: string;
  readonly #carrier: CallCarrier;
  /** One place is reserved for a local `failed`. */
  readonly #events = new Channel<EngineEvent>(EVENT_WINDOW + 1);
  readonly #inner = this.#events[Symbol.asyncIterator]();
  readonly #signal: AbortSignal;
  readonly #onAbort = () => this.#cancel("the caller cancelled the request");
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

  /** An event from the worker; one that exceeds the window is cut off. */
  deliver(event: EngineEvent): void {
    if (this.ended) return;
    if (this.#events.size >= EVENT_WINDOW) {
      const message = `worker ${this.node} sent more events than it was granted`;
      this.fail({ code: "server_error", message });
      this.#carrier.cancel(this.id);
      return;
    }
    this.#events.push(event);
    if (event.type === "done" || event.type === "failed") this.#close();
  }

  /** Ends the call from this side; buffered events are still read first. */
  fail(error: EngineFailure): void {
    if (this.ended) return;
    this.#events.push({ type: "failed", id: this.id, error });
    this.#close();
  }

  /** Ends the call at its deadline, which the worker should have done. */
  expire(): void {
    if (this.ended) return;
    const message = `worker ${this.node} did not answer before the deadline`;
    this.fail({ code: "deadline_exceeded", message });
    this.#carrier.cancel(this.id);
  }

  [Symbol.asyncIterator](): AsyncIterator<EngineEvent> {
    return {
      next: () => {
        // Requesting the next event consumes the previous one, so no further promise is needed.
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
    if (this.#consumed < GRANT_LOT || this.ended) return;
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
