import type { Llama } from "./bindings.ts";
import type { Pointer } from "./layouts.ts";
import type { KvSlots } from "./slot-kv-cache.ts";

/** A copy's buffer up to this size is kept for the next: fresh memory costs more than the copy. */
const KEPT_BUFFER_BYTES = 32 * 2 ** 20;

/**
 * Copies and cuts sequences of a cache split by streams. A copy goes through the library's saved
 * state, which holds only the cells in use and is there at once; `llama_memory_seq_cp` between
 * streams moves the whole stream, and not before the next decode.
 */
export function streamSlots(llama: Llama, context: Pointer): KvSlots {
  const memory = llama.get_memory(context);
  let buffer = new Uint8Array(0);
  return {
    truncate(slot, length) {
      llama.memory_seq_rm(memory, slot, length, -1);
    },
    copy(from, to, length, held) {
      const size = Number(llama.state_seq_get_size(context, from));
      const target = size <= buffer.length ? buffer : new Uint8Array(size);
      if (size <= KEPT_BUFFER_BYTES) buffer = target;
      const written = Number(llama.state_seq_get_data(context, target, target.length, from));
      const read = Number(llama.state_seq_set_data(context, target, written, to));
      if (written === 0 || read !== written) {
        throw new Error(`copying ${held} tokens from slot ${from} to ${to} moved ${read} bytes`);
      }
      if (length < held) llama.memory_seq_rm(memory, to, length, -1);
    },
  };
}
