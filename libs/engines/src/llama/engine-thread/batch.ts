import koffi from "koffi";
import { ROW_NUMBERS } from "../../shards/ring/stage-frame.ts";
import type { BatchStruct } from "../native/bindings.ts";

/** `llama_decode` answers: done, and no room in the cache for the batch. */
export const DECODED = 0;
export const NO_KV_SLOT = 1;
/** No answer of the library: the stages before this one have lost all tokens. */
export const STAGES_LOST = -1_000;
/** Neither is this: one of them cannot use the adapter. */
export const STAGES_UNFIT = -1_001;

/** Tokens per decode; also what a prompt gets per step while nothing decodes. */
export const BATCH_TOKENS = 512;

/**
 * A `llama_batch` in native memory that lives as long as its thread, filled through typed arrays:
 * nothing is allocated or converted per step.
 */
export class Batch {
  readonly capacity: number;
  readonly struct: BatchStruct;
  readonly #tokens: Int32Array;
  readonly #tokensAddress: bigint;
  readonly #positions: Int32Array;
  readonly #sequencePointers: BigUint64Array;
  readonly #outputs: Int8Array;
  readonly #sequences: Int32Array;
  readonly #rows: RowMemory | undefined;
  /** The address of a native int32 that holds the sequence id of its index. */
  readonly #addressOfSequence: BigUint64Array;
  #outputCount = 0;

  /** With `rows` it can hold rows of the residual stream in place of tokens. */
  constructor(capacity: number, sequences: number, rows?: RowMemory) {
    this.capacity = capacity;
    this.#rows = rows;
    const tokens = nativeMemory(capacity * 4);
    const positions = nativeMemory(capacity * 4);
    const counts = nativeMemory(capacity * 4);
    const pointers = nativeMemory(capacity * 8);
    const outputs = nativeMemory(capacity);
    const ids = nativeMemory(sequences * 4);
    this.#tokens = new Int32Array(tokens.view);
    this.#tokensAddress = tokens.address;
    this.#positions = new Int32Array(positions.view);
    this.#sequencePointers = new BigUint64Array(pointers.view);
    this.#outputs = new Int8Array(outputs.view);
    this.#sequences = new Int32Array(capacity);
    new Int32Array(counts.view).fill(1);
    new Int32Array(ids.view).set(Array.from({ length: sequences }, (_, id) => id));
    this.#addressOfSequence = BigUint64Array.from(
      { length: sequences },
      (_, id) => ids.address + 4n * BigInt(id),
    );
    this.struct = {
      n_tokens: 0,
      token: tokens.address,
      embd: null,
      pos: positions.address,
      n_seq_id: counts.address,
      seq_id: pointers.address,
      logits: outputs.address,
    };
  }

  get size(): number {
    return this.struct.n_tokens;
  }

  /** Rows of logits that the decode will give. */
  get outputCount(): number {
    return this.#outputCount;
  }

  clear(): void {
    this.struct.n_tokens = 0;
    this.struct.token = this.#tokensAddress;
    this.struct.embd = null;
    this.#outputCount = 0;
  }

  /** The id, position and sequence of each token, as stages of a model get them. */
  rows(): Int32Array {
    const rows = new Int32Array(this.size * ROW_NUMBERS);
    for (let i = 0; i < this.size; i++) {
      rows[i * ROW_NUMBERS] = this.#tokens[i] as number;
      rows[i * ROW_NUMBERS + 1] = this.#positions[i] as number;
      rows[i * ROW_NUMBERS + 2] = this.#sequences[i] as number;
    }
    return rows;
  }

  /** Gives the batch's rows of the residual stream, one after the other, in place of its tokens. */
  setRows(rows: Float32Array): void {
    if (!this.#rows) throw new Error("this batch holds tokens only");
    this.#rows.view.set(rows);
    this.struct.embd = this.#rows.address;
    this.struct.token = null;
  }

  /** Adds a token; with `output` its row of logits is the one that `outputCount` counted before. */
  add(token: number, position: number, sequence: number, output: boolean): void {
    const at = this.struct.n_tokens++;
    this.#tokens[at] = token;
    this.#positions[at] = position;
    this.#sequencePointers[at] = this.#addressOfSequence[sequence] as bigint;
    this.#outputs[at] = output ? 1 : 0;
    this.#sequences[at] = sequence;
    if (output) this.#outputCount++;
  }
}

/** Memory for rows of the residual stream. Batches that are decoded one after the other share it. */
export interface RowMemory {
  readonly address: bigint;
  readonly view: Float32Array;
}

/** For this many rows; undefined where rows have no numbers. */
export function rowMemory(rows: number, rowLength: number): RowMemory | undefined {
  if (rowLength === 0) return undefined;
  const { address, view } = nativeMemory(rows * rowLength * 4);
  return { address, view: new Float32Array(view) };
}

/** Native memory that is never freed: it belongs to the thread's batches. */
function nativeMemory(bytes: number): { address: bigint; view: ArrayBuffer } {
  const memory: unknown = koffi.alloc("uint8_t", bytes);
  return { address: koffi.address(memory), view: koffi.view(memory, bytes) };
}
