import type { Llama } from "../native/bindings.ts";
import type { Pointer } from "../native/layouts.ts";

/**
 * The most bytes of all adapters' files that an engine keeps loaded; they take about as much
 * memory.
 */
export const MAX_ADAPTER_BYTES = 2 * 2 ** 30;
/** The largest file that goes to other stages too: all calls wait for its frames. */
export const MAX_GIVEN_BYTES = 512 * 2 ** 20;

/** A loaded LoRA adapter, and what its change of the weights is multiplied by. */
export interface AppliedAdapter {
  readonly pointer: Pointer;
  readonly scale: number;
}

/** Further calls of the context compute with the adapter; without one, with the model as it is. */
export function setAdapter(
  llama: Llama,
  context: Pointer,
  adapter: AppliedAdapter | undefined,
): void {
  const pointers = BigUint64Array.of(adapter?.pointer ?? 0n);
  const scales = Float32Array.of(adapter?.scale ?? 0);
  const answer = llama.set_adapters_lora(context, pointers, adapter ? 1 : 0, scales);
  if (answer !== 0) throw new Error(`llama_set_adapters_lora failed with code ${answer}`);
}
