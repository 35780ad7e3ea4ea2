import type { Llama } from "../native/bindings.ts";
import type { Pointer } from "../native/layouts.ts";
import type { KvSlots } from "./slot-kv-cache.ts";

/** A buffer up to this size is kept for the next copy: fresh memory costs more than the copy. */
const KEPT_BUFFER_BYTES = 32 * 2 ** 20;

/**
 * Copies sequences of a cache split by streams, by the library's saved state of the cells in use,
 * and cuts them. `llama_memory_seq_cp` would move the whole stream, and not before the next decode.
 */
export function streamSlots(llama: Llama, context: Pointer): KvSlots {
  const memory = llama.get_memory(context);
  const states = [new SavedState(llama, context), new SavedState(llama, context)] as const;
  return {
    truncate(slot, length) {
      llama.memory_seq_rm(memory, slot, length, -1);
    },
    copy(from, to, length, held) {
      states[0].save(from);
      states[0].restore(to);
      if (length < held) llama.memory_seq_rm(memory, to, length, -1);
    },
    swap(a, b) {
      states[0].save(a);
      states[1].save(b);
      states[0].restore(b);
      states[1].restore(a);
    },
  };
}

/** The saved state of one sequence. */
class SavedState {
  readonly #llama: Llama;
  readonly #context: Pointer;
  /** Reused while it is large enough. */
  #buffer = new Uint8Array(0);
  #bytes = 0;

  constructor(llama: Llama, context: Pointer) {
    this.#llama = llama;
    this.#context = context;
  }

  save(sequence: number): void {
    const size = Number(this.#llama.state_seq_get_size(this.#context, sequence));
    if (size > this.#buffer.length) this.#buffer = new Uint8Array(size);
    const { length } = this.#buffer;
    const written = this.#llama.state_seq_get_data(this.#context, this.#buffer, length, sequence);
    this.#bytes = Number(written);
    if (this.#bytes === 0) throw new Error(`the state of sequence ${sequence} could not be saved`);
  }

  /** Replaces what the sequence holds by the saved state. */
  restore(sequence: number): void {
    this.#llama.memory_seq_rm(this.#llama.get_memory(this.#context), sequence, 0, -1);
    const read = this.#llama.state_seq_set_data(this.#context, this.#buffer, this.#bytes, sequence);
    if (Number(read) !== this.#bytes) {
      throw new Error(`of ${this.#bytes} saved bytes sequence ${sequence} took ${read}`);
    }
    if (this.#buffer.length > KEPT_BUFFER_BYTES) this.#buffer = new Uint8Array(0);
  }
}
