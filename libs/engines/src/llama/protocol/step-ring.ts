import type { ThreadLoad, ThreadStep } from "./thread-messages.ts";

/** Numbers that the ring has room for: a hundred steps of a full batch of small requests. */
const CAPACITY = 1 << 14;
/** A record: how many tokens, the eight numbers of the load, then handle, token and end of each. */
const HEAD_NUMBERS = 9;
const TOKEN_NUMBERS = 3;
const HEADER_BYTES = 8;

/** Memory for a ring, shared by the thread that writes and the one that reads. */
export function stepRingMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer(HEADER_BYTES + CAPACITY * Float64Array.BYTES_PER_ELEMENT);
}

/**
 * Steps that brought nothing but tokens, from the engine thread to the main thread in shared memory.
 * Only a record's position is posted: posting an object costs the engine thread more than all its
 * other work between two calls of the library.
 * - A record is written before its position is posted, and freed after it was read.
 * - Posting keeps the order, so the threads share no other state than the count of free numbers.
 */
export class StepRing {
  /** Numbers read since the start, modulo 2^32. */
  readonly #read: Int32Array;
  readonly #numbers: Float64Array;
  /** Numbers written since the start, modulo 2^32; of the writer alone. */
  #written = 0;
  #at = 0;

  constructor(memory: SharedArrayBuffer) {
    this.#read = new Int32Array(memory, 0, 1);
    this.#numbers = new Float64Array(memory, HEADER_BYTES, CAPACITY);
  }

  /** Where the record begins; undefined where there is no room, and nothing is written then. */
  write(
    count: number,
    handles: Int32Array,
    tokens: Int32Array,
    ends: Uint8Array,
    load: ThreadLoad,
  ): number | undefined {
    const size = HEAD_NUMBERS + count * TOKEN_NUMBERS;
    // A record is never split: what is left at the end goes unused.
    const isAtEnd = this.#at + size > CAPACITY;
    const skipped = isAtEnd ? CAPACITY - this.#at : 0;
    const held = (this.#written - Atomics.load(this.#read, 0)) | 0;
    if (held + skipped + size > CAPACITY) return undefined;
    const begin = isAtEnd ? 0 : this.#at;
    const numbers = this.#numbers;
    numbers[begin] = count;
    numbers[begin + 1] = load.running;
    numbers[begin + 2] = load.waiting;
    numbers[begin + 3] = load.kvUsedTokens;
    numbers[begin + 4] = load.promptTokens;
    numbers[begin + 5] = load.cachedTokens;
    numbers[begin + 6] = load.generatedTokens;
    numbers[begin + 7] = load.draftTokens;
    numbers[begin + 8] = load.acceptedTokens;
    for (let i = 0, at = begin + HEAD_NUMBERS; i < count; i++) {
      numbers[at++] = handles[i] as number;
      numbers[at++] = tokens[i] as number;
      numbers[at++] = ends[i] as number;
    }
    this.#at = begin + size;
    this.#written = (this.#written + skipped + size) | 0;
    return begin;
  }

  /** The step that begins there; records are read once each, in the order of their posting. */
  read(begin: number): ThreadStep {
    const numbers = this.#numbers;
    const number = (i: number): number => numbers[begin + i] as number;
    const count = number(0);
    const step: ThreadStep = {
      kind: "step",
      handles: new Int32Array(count),
      tokens: new Int32Array(count),
      ends: new Uint8Array(count),
      logprobs: undefined,
      started: [],
      load: {
        running: number(1),
        waiting: number(2),
        kvUsedTokens: number(3),
        promptTokens: number(4),
        cachedTokens: number(5),
        generatedTokens: number(6),
        draftTokens: number(7),
        acceptedTokens: number(8),
      },
    };
    for (let i = 0, at = HEAD_NUMBERS; i < count; i++) {
      step.handles[i] = number(at++);
      step.tokens[i] = number(at++);
      step.ends[i] = number(at++);
    }
    const size = HEAD_NUMBERS + count * TOKEN_NUMBERS;
    const skipped = begin < this.#at ? CAPACITY - this.#at : 0;
    this.#at = begin + size;
    Atomics.add(this.#read, 0, skipped + size);
    return step;
  }
}
