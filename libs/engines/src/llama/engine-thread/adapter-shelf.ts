import type { Sequence } from "../kv-cache/sequence.ts";
import type { Pointer } from "../native/layouts.ts";
import type { ThreadAdapter } from "../protocol/thread-messages.ts";
import type { LoadedModel } from "./model.ts";

/** The library keeps an adapter until its model is freed, so their number has a bound. */
const MAX_ADAPTERS = 128;

/** The number of the model without an adapter, and of an adapter that the library does not take. */
const NO_ADAPTER = 0;
export const UNFIT = -1;

interface Shelved {
  readonly pointer: Pointer;
  readonly scale: number;
}

/**
 * The LoRA adapters of a loaded model. They are read at their first request, and apply to a whole
 * call of the library: a call computes sequences of one adapter, and adapters take turns by rounds.
 */
export class AdapterShelf {
  readonly #model: Pick<LoadedModel, "llama" | "native" | "context">;
  readonly #numbers = new Map<string, number>();
  /** At number - 1. */
  readonly #shelved: Shelved[] = [];
  /** What the context computes with, and whose round was last. */
  #applied = NO_ADAPTER;
  #turn = NO_ADAPTER;

  constructor(model: Pick<LoadedModel, "llama" | "native" | "context">) {
    this.#model = model;
  }

  /** The adapter's number, 0 for none; UNFIT where it cannot be used. */
  numberOf(adapter: ThreadAdapter | undefined): number {
    if (adapter === undefined) return NO_ADAPTER;
    const { path, scale } = adapter;
    const key = `${scale} ${path}`;
    const known = this.#numbers.get(key);
    if (known !== undefined) return known;
    if (this.#shelved.length >= MAX_ADAPTERS) return UNFIT;
    const pointer = this.#model.llama.adapter_lora_init(this.#model.native, path);
    if (pointer === null) return UNFIT;
    const number = this.#shelved.push({ pointer, scale });
    this.#numbers.set(key, number);
    return number;
  }

  /** Chooses the adapter of the next round: that of the running sequences whose turn it is. */
  nextOf(running: Iterable<Sequence>): number {
    let next = Number.POSITIVE_INFINITY;
    let first = Number.POSITIVE_INFINITY;
    for (const { adapter, embedding } of running) {
      if (embedding !== undefined) continue;
      first = Math.min(first, adapter);
      if (adapter > this.#turn) next = Math.min(next, adapter);
    }
    const chosen = Number.isFinite(next) ? next : first;
    this.#turn = Number.isFinite(chosen) ? chosen : NO_ADAPTER;
    return this.#turn;
  }

  /** Before a call of the library. */
  apply(number: number): void {
    if (number === this.#applied) return;
    const { llama, context } = this.#model;
    const shelved = this.#shelved[number - 1];
    const pointers = BigUint64Array.of(shelved?.pointer ?? 0n);
    const scales = Float32Array.of(shelved?.scale ?? 0);
    const count = shelved === undefined ? 0 : 1;
    const answer = llama.set_adapters_lora(context, pointers, count, scales);
    if (answer !== 0) throw new Error(`llama_set_adapters_lora failed with code ${answer}`);
    this.#applied = number;
  }
}
