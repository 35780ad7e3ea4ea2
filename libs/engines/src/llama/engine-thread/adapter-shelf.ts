import { statSync } from "node:fs";
import type { Sequence } from "../kv-cache/sequence.ts";
import type { Pointer } from "../native/layouts.ts";
import { ENDED_CROWDED, ENDED_UNFIT, type ThreadAdapter } from "../protocol/thread-messages.ts";
import type { LoadedModel } from "./model.ts";

/** What an engine keeps loaded; an adapter takes about as much memory as its file. */
const MAX_ADAPTERS = 128;
const MAX_ADAPTER_BYTES = 2 * 2 ** 30;

/** The number of the model without an adapter. */
const NO_ADAPTER = 0;

/** Why an adapter has no number: the negative of how its request ends. */
const UNFIT = -ENDED_UNFIT;
const CROWDED = -ENDED_CROWDED;

interface LoadedFile {
  readonly pointer: Pointer;
  readonly bytes: number;
  /** The numbers of its adapters, by scale. */
  readonly numbers: Map<number, number>;
}

interface Shelved {
  readonly pointer: Pointer;
  readonly scale: number;
}

/**
 * The LoRA adapters of a loaded model. They are read at their first request, and apply to a whole
 * call of the library: a call computes sequences of one adapter, and adapters take turns by rounds.
 * Those that no sequence has are freed, the longest unused first, where another needs their room.
 */
export class AdapterShelf {
  readonly #model: Pick<LoadedModel, "llama" | "native" | "context">;
  /** All that wait or run. */
  readonly #sequences: ReadonlyMap<number, Sequence>;
  /** By path; the longest unused first. */
  readonly #files = new Map<string, LoadedFile>();
  /** By number. A number is given once: caches know by it what a prefix was computed with. */
  readonly #shelved = new Map<number, Shelved>();
  #lastNumber = NO_ADAPTER;
  #bytes = 0;
  /** What the context computes with, and whose round was last. */
  #applied = NO_ADAPTER;
  #turn = NO_ADAPTER;

  constructor(
    model: Pick<LoadedModel, "llama" | "native" | "context">,
    sequences: ReadonlyMap<number, Sequence>,
  ) {
    this.#model = model;
    this.#sequences = sequences;
  }

  /** The adapter's number, 0 for none; below 0 where it cannot be used. */
  numberOf(adapter: ThreadAdapter | undefined): number {
    if (adapter === undefined) return NO_ADAPTER;
    const { path, scale } = adapter;
    const file = this.#files.get(path) ?? this.#load(path);
    if (typeof file === "number") return file;
    this.#files.delete(path);
    this.#files.set(path, file);
    const known = file.numbers.get(scale);
    if (known !== undefined) return known;
    const number = ++this.#lastNumber;
    file.numbers.set(scale, number);
    this.#shelved.set(number, { pointer: file.pointer, scale });
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
    const shelved = this.#shelved.get(number);
    const pointers = BigUint64Array.of(shelved?.pointer ?? 0n);
    const scales = Float32Array.of(shelved?.scale ?? 0);
    const count = shelved === undefined ? 0 : 1;
    const answer = llama.set_adapters_lora(context, pointers, count, scales);
    if (answer !== 0) throw new Error(`llama_set_adapters_lora failed with code ${answer}`);
    this.#applied = number;
  }

  #load(path: string): LoadedFile | typeof UNFIT | typeof CROWDED {
    const bytes = statSync(path, { throwIfNoEntry: false })?.size;
    if (bytes === undefined || bytes > MAX_ADAPTER_BYTES) return UNFIT;
    if (!this.#makeRoom(bytes)) return CROWDED;
    const { llama, native } = this.#model;
    const pointer = llama.adapter_lora_init(native, path);
    if (pointer === null) return UNFIT;
    this.#bytes += bytes;
    return { pointer, bytes, numbers: new Map() };
  }

  /** Whether there is room for a file, after freeing what no sequence has. */
  #makeRoom(bytes: number): boolean {
    const fits = () => this.#files.size < MAX_ADAPTERS && this.#bytes + bytes <= MAX_ADAPTER_BYTES;
    if (fits()) return true;
    const used = new Set(Array.from(this.#sequences.values(), ({ adapter }) => adapter));
    for (const [path, file] of this.#files) {
      if ([...file.numbers.values()].some((number) => used.has(number))) continue;
      this.#free(path, file);
      if (fits()) return true;
    }
    return false;
  }

  #free(path: string, { pointer, bytes, numbers }: LoadedFile): void {
    for (const number of numbers.values()) {
      if (number === this.#applied) this.apply(NO_ADAPTER);
      this.#shelved.delete(number);
    }
    this.#model.llama.adapter_lora_free(pointer);
    this.#files.delete(path);
    this.#bytes -= bytes;
  }
}
