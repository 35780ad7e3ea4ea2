import { setTimeout as delay } from "node:timers/promises";
import type { ResponseEvent } from "@heddle/contracts/api/responses/response";
import type { DocumentPlace } from "../../documents/documents.ts";
import { ResponseBuilder, type ResponseHead, type ResponseUpdate } from "./response-builder.ts";
import type { KeptResponse, ResponseStore } from "./response-store.ts";

/** A response whose events can be read while it runs. */
export interface ResponseSource {
  readonly head: ResponseHead;
  /** All of the response, from its first piece to its end. */
  progress(signal: AbortSignal): AsyncIterable<ResponseUpdate>;
}

/** All events of the response, from its first one to its end. */
export async function* followed(
  source: ResponseSource,
  signal: AbortSignal,
): AsyncGenerator<ResponseEvent[], void> {
  const builder = new ResponseBuilder(source.head);
  yield builder.create();
  let isShown = false;
  for await (const { hasBegun, pieces, outcome } of source.progress(signal)) {
    if (hasBegun && !isShown) {
      isShown = true;
      yield builder.begin();
    }
    for (const piece of pieces) yield builder.push(piece);
    if (outcome) yield builder.end(outcome);
  }
}

/** How often a response is read whose master does not answer. */
const POLL_MS = 1_000;

/** A stored response; one that runs on another master is followed there. */
export class StoredSource implements ResponseSource {
  readonly #store: ResponseStore;
  readonly #place: DocumentPlace;
  readonly #kept: KeptResponse;

  constructor(store: ResponseStore, place: DocumentPlace, kept: KeptResponse) {
    this.#store = store;
    this.#place = place;
    this.#kept = kept;
  }

  get head() {
    return this.#kept.stored.head;
  }

  async *progress(signal: AbortSignal): AsyncGenerator<ResponseUpdate, void> {
    let { stored, master } = this.#kept;
    if (stored.outcome) yield stored;
    for (let given = 0; stored.outcome === undefined; ) {
      if (master !== undefined) {
        for await (const update of this.#live(master, given, signal)) {
          given += update.pieces.length;
          yield update;
          if (update.outcome) return;
        }
      }
      await delay(POLL_MS, undefined, { signal });
      ({ stored, master } = await this.#store.get(this.#place, this.head.id));
      if (stored.outcome) yield { ...stored, pieces: stored.pieces.slice(given) };
    }
  }

  /** Its progress there, until that master has no more of it or does not answer. */
  async *#live(
    master: string,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<ResponseUpdate, void> {
    try {
      yield* this.#store.relay.follow(
        master,
        { id: this.head.id, owner: this.#place.owner, from },
        signal,
      );
    } catch {
      signal.throwIfAborted();
    }
  }
}
