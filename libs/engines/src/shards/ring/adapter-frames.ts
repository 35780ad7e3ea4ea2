import { setAdapter } from "../../llama/engine-thread/set-adapter.ts";
import type { Llama } from "../../llama/native/bindings.ts";
import type { Pointer } from "../../llama/native/layouts.ts";
import { type AdaptedShard, loadAdapterPart } from "../adapter-cut.ts";
import { type BytesFrame, bytesFrame, ComingBytes, FRAME_PART_BYTES } from "./frame-bytes.ts";
import type { StageFrame } from "./stage-frame.ts";

/** Gives the stages a part of an adapter's file. */
type AdapterFrame = Pick<StageFrame, "adapter"> & BytesFrame;

/** The frames that give all stages a file under a number. Without bytes they forget the number. */
export function* adapterFrames(adapter: number, file: Uint8Array): Generator<AdapterFrame> {
  for (let at = 0; at === 0 || at < file.length; at += FRAME_PART_BYTES) {
    yield { adapter, ...bytesFrame(file, at) };
  }
}

/** The adapters that a stage was given, by number. */
export class GivenAdapters {
  readonly #llama: Llama;
  readonly #model: Pointer;
  readonly #context: Pointer;
  readonly #shard: AdaptedShard;
  /** Null where it cannot be used. */
  readonly #loaded = new Map<number, Pointer>();
  readonly #coming = new ComingBytes();
  #applied = "";

  constructor(
    { llama, model, context }: { llama: Llama; model: Pointer; context: Pointer },
    shard: AdaptedShard,
  ) {
    this.#llama = llama;
    this.#model = model;
    this.#context = context;
    this.#shard = shard;
  }

  /** Whether it was given none, or has forgotten all. */
  get isEmpty(): boolean {
    return this.#loaded.size === 0;
  }

  take({ adapter, ...part }: AdapterFrame): void {
    const file = this.#coming.take(part);
    if (file?.length === 0) this.#forget(adapter);
    else if (file) {
      this.#loaded.set(adapter, loadAdapterPart(this.#llama, this.#model, file, this.#shard));
    }
  }

  /** Before a decode; 0 is the model itself. False where the adapter cannot be used. */
  apply(adapter: number, scale: number): boolean {
    const wanted = adapter === 0 ? "" : `${adapter} ${scale}`;
    if (wanted === this.#applied) return true;
    const pointer = this.#loaded.get(adapter) ?? null;
    if (adapter !== 0 && pointer === null) return false;
    setAdapter(this.#llama, this.#context, pointer === null ? undefined : { pointer, scale });
    this.#applied = wanted;
    return true;
  }

  #forget(adapter: number): void {
    const pointer = this.#loaded.get(adapter) ?? null;
    this.#loaded.delete(adapter);
    if (pointer === null) return;
    this.apply(0, 0);
    this.#llama.adapter_lora_free(pointer);
  }

  clear(): void {
    this.#coming.clear();
    for (const adapter of [...this.#loaded.keys()]) this.#forget(adapter);
  }
}
