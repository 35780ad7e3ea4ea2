import { setTimeout as delay } from "node:timers/promises";
import type { ResponseEvent } from "@heddle/contracts/api/responses/response";
import { ResponseBuilder } from "./response-builder.ts";
import type { ResponseStore, StoredResponse } from "./response-store.ts";

/** A response whose events can be read while it runs. */
export interface ResponseSource
  extends Pick<StoredResponse, "head" | "hasBegun" | "pieces" | "outcome"> {
  /** Resolves at the next change. */
  changed(signal: AbortSignal): Promise<void>;
}

/** All events of the response, from its first one to its end. */
export async function* followed(
  source: ResponseSource,
  signal: AbortSignal,
): AsyncGenerator<ResponseEvent[], void> {
  const builder = new ResponseBuilder(source.head);
  yield builder.create();
  let hasBegun = false;
  for (let at = 0; ; ) {
    if (source.hasBegun && !hasBegun) {
      hasBegun = true;
      yield builder.begin();
    }
    for (let piece = source.pieces[at]; piece !== undefined; piece = source.pieces[++at]) {
      yield builder.push(piece);
    }
    if (source.outcome) {
      yield builder.end(source.outcome);
      return;
    }
    await source.changed(signal);
    signal.throwIfAborted();
  }
}

/** How often a response that runs on another master is looked at. */
const POLL_MS = 1_000;

/** A stored response; one that runs on another master changes when that one stores its end. */
export class StoredSource implements ResponseSource {
  readonly #store: ResponseStore;
  readonly #owner: string;
  #stored: StoredResponse;

  constructor(store: ResponseStore, owner: string, stored: StoredResponse) {
    this.#store = store;
    this.#owner = owner;
    this.#stored = stored;
  }

  get head() {
    return this.#stored.head;
  }

  get hasBegun() {
    return this.#stored.hasBegun;
  }

  get pieces() {
    return this.#stored.pieces;
  }

  get outcome() {
    return this.#stored.outcome;
  }

  async changed(signal: AbortSignal): Promise<void> {
    while (this.#stored.outcome === undefined) {
      await delay(POLL_MS, undefined, { signal });
      const { stored } = await this.#store.get(this.#owner, this.head.id);
      this.#stored = stored;
    }
  }
}
