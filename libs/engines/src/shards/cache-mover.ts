import type { Llama } from "../llama/native/bindings.ts";
import type { Pointer } from "../llama/native/layouts.ts";
import type { CellTable, SequenceCells } from "./cell-table.ts";

/** The most sequences that the library distinguishes (LLAMA_MAX_SEQ). */
const MAX_SEQUENCES = 256;
/** The library saves those alone that may run, so that prefixes are saved and taken as this one. */
const CARRIER = 0;
const LENGTH_BYTES = 4;

/** The cache of a context. */
interface LibraryCache {
  readonly llama: Llama;
  readonly context: Pointer;
  readonly memory: Pointer;
  /** The window of the attention, in tokens; 0 for none. */
  readonly window: number;
}

/**
 * Moves a stage's cache, sequence by sequence, to another one of the same blocks: each cell once,
 * and which sequences share it. A sequence is the length of a JSON text, the text, and the bytes
 * that the library saves.
 */
export class CacheMover {
  readonly #cache: LibraryCache;
  readonly #table: CellTable;
  /** Sequences that may run: those from 0. */
  readonly #running: number;
  #saving: readonly SequenceCells[] = [];
  #parked: number | undefined;

  constructor(cache: LibraryCache, table: CellTable, running: number) {
    this.#cache = cache;
    this.#table = table;
    this.#running = running;
  }

  /**
   * The number of sequences to save. It ends the stage: each cell remains in one sequence. Undefined
   * where there are too many, and for attention in a window: the library does not save what an earlier
   * position would see.
   */
  begin(): number | undefined {
    if (this.#cache.window > 0) return undefined;
    const all = this.#table.sequences();
    const used = new Set(all.map(({ sequence }) => sequence));
    const free = Array.from({ length: MAX_SEQUENCES }, (_, id) => id).findLast(
      (id) => !used.has(id),
    );
    if (free === undefined) return undefined;
    for (const { sequence, shared } of all) {
      for (const { begin, end } of shared) this.#remove(sequence, begin, end);
    }
    this.#rename(CARRIER, free);
    this.#parked = free;
    this.#saving = all;
    return all.length;
  }

  /** One after the other, each once. Undefined where the library does not save it. */
  save(index: number): Uint8Array | undefined {
    const cells = this.#saving[index];
    if (!cells) return undefined;
    const { sequence } = cells;
    const id = this.#carrierOf(sequence);
    if (sequence >= this.#running) this.#rename(sequence, CARRIER);
    else this.#unpark();
    const text = Buffer.from(JSON.stringify(cells));
    const head = LENGTH_BYTES + text.length;
    const bytes = Buffer.alloc(head + this.#bytesOf(id));
    bytes.writeUInt32LE(text.length);
    bytes.set(text, LENGTH_BYTES);
    if (!this.#saveInto(bytes.subarray(head), id)) return undefined;
    this.#remove(id, -1, -1);
    return bytes;
  }

  /** False where this stage would not save the sequence in the same way. */
  take(saved: Uint8Array): boolean {
    const buffer = Buffer.from(saved.buffer, saved.byteOffset, saved.length);
    const head = LENGTH_BYTES + buffer.readUInt32LE();
    const text = buffer.toString("utf8", LENGTH_BYTES, head);
    const { sequence, own, shared } = JSON.parse(text) as SequenceCells;
    const id = this.#carrierOf(sequence);
    const { llama, context, memory } = this.#cache;
    const data = buffer.subarray(head);
    const taken = Number(llama.state_seq_set_data(context, data, data.length, id));
    const again = Buffer.alloc(data.length);
    if (taken !== data.length || !this.#saveInto(again, id) || !again.equals(data)) return false;
    if (id !== sequence) this.#rename(id, sequence);
    for (const { begin, end } of own) {
      for (let position = begin; position < end; position++) this.#table.add(sequence, position);
    }
    for (const { owner, begin, end } of shared) {
      llama.memory_seq_cp(memory, owner, sequence, begin, end);
      this.#table.copy(owner, sequence, begin, end);
    }
    return true;
  }

  #carrierOf(sequence: number): number {
    return sequence >= this.#running ? CARRIER : sequence;
  }

  /** The carrier's own cells return to it when no prefix needs it any more. */
  #unpark(): void {
    if (this.#parked !== undefined) this.#rename(this.#parked, CARRIER);
    this.#parked = undefined;
  }

  #rename(from: number, to: number): void {
    const { llama, memory } = this.#cache;
    llama.memory_seq_cp(memory, from, to, -1, -1);
    this.#remove(from, -1, -1);
  }

  #remove(sequence: number, begin: number, end: number): void {
    this.#cache.llama.memory_seq_rm(this.#cache.memory, sequence, begin, end);
  }

  #bytesOf(sequence: number): number {
    const { llama, context } = this.#cache;
    return Number(llama.state_seq_get_size(context, sequence));
  }

  #saveInto(into: Uint8Array, sequence: number): boolean {
    const { llama, context } = this.#cache;
    const { length } = into;
    return Number(llama.state_seq_get_data(context, into, length, sequence)) === length;
  }
}
