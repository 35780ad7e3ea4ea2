import { readFileSync, statSync } from "node:fs";
import type { RingAdapter } from "../../shards/ring/stage-ring.ts";
import type { Sequence } from "../kv-cache/sequence.ts";
import type { Pointer } from "../native/layouts.ts";
import { ENDED_CROWDED, ENDED_UNFIT, type ThreadAdapter } from "../protocol/thread-messages.ts";
import type { LoadedModel } from "./model.ts";
import { type AppliedAdapter, MAX_ADAPTER_BYTES, setAdapter } from "./set-adapter.ts";

/** What an engine keeps loaded. */
const MAX_ADAPTERS = 128;

type AdaptedModel = Pick<
  LoadedModel,
  "llama" | "context" | "loadAdapter" | "maxAdapterBytes" | "forgetAdapter"
>;

/** The number of the model without an adapter. */
const NO_ADAPTER = 0;

/** In place of a number, where an adapter cannot be loaded: the negated end code of its request. */
const UNFIT = -ENDED_UNFIT;
const CROWDED = -ENDED_CROWDED;

interface LoadedFile {
  /** Its id in messages to other stages. */
  readonly id: number;
  readonly pointer: Pointer;
  readonly bytes: number;
  /** The numbers of its adapters, by scale. */
  readonly numbers: Map<number, number>;
}

interface LoadedAdapter extends AppliedAdapter {
  readonly id: number;
  readonly path: string;
}

/**
 * The LoRA adapters of a loaded model, read at their first request; unused ones are freed where
 * another needs the room. A call of the library computes sequences of one adapter, so adapters take
 * turns by rounds.
 */
export class LoadedAdapters {
  readonly #model: AdaptedModel;
  /** All that wait or run. */
  readonly #sequences: ReadonlyMap<number, Sequence>;
  /** Keyed by path; the longest unused first. */
  readonly #files = new Map<string, LoadedFile>();
  /** Keyed by number. A number is given once: caches know by it what a prefix was computed with. */
  readonly #adapters = new Map<number, LoadedAdapter>();
  #lastNumber = NO_ADAPTER;
  #lastId = NO_ADAPTER;
  #bytes = 0;
  /** What the context computes with, and whose round was last. */
  #applied = NO_ADAPTER;
  #turn = NO_ADAPTER;

  constructor(model: AdaptedModel, sequences: ReadonlyMap<number, Sequence>) {
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
    this.#adapters.set(number, { id: file.id, path, pointer: file.pointer, scale });
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
    setAdapter(this.#model.llama, this.#model.context, this.#adapters.get(number));
    this.#applied = number;
  }

  /** The form that other stages get. */
  given(number: number): RingAdapter | undefined {
    const adapter = this.#adapters.get(number);
    if (!adapter) return undefined;
    const { id, scale, path } = adapter;
    return { number: id, scale, read: () => bytesOf(path) };
  }

  #load(path: string): LoadedFile | typeof UNFIT | typeof CROWDED {
    const bytes = statSync(path, { throwIfNoEntry: false })?.size;
    if (bytes === undefined || bytes > this.#model.maxAdapterBytes) return UNFIT;
    if (!this.#makeRoom(bytes)) return CROWDED;
    const pointer = this.#model.loadAdapter(path);
    if (pointer === null) return UNFIT;
    this.#bytes += bytes;
    return { id: ++this.#lastId, pointer, bytes, numbers: new Map() };
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

  #free(path: string, { id, pointer, bytes, numbers }: LoadedFile): void {
    for (const number of numbers.values()) {
      if (number === this.#applied) this.apply(NO_ADAPTER);
      this.#adapters.delete(number);
    }
    this.#model.llama.adapter_lora_free(pointer);
    this.#model.forgetAdapter(id);
    this.#files.delete(path);
    this.#bytes -= bytes;
  }
}

/** Nothing where the file is gone: then the other stages have no such adapter. */
function bytesOf(path: string): Uint8Array {
  try {
    return readFileSync(path);
  } catch {
    return new Uint8Array(0);
  }
}
