import { setAdapter } from "../../llama/engine-thread/set-adapter.ts";
import type { Llama } from "../../llama/native/bindings.ts";
import type { Pointer } from "../../llama/native/layouts.ts";
import { type AdaptedShard, loadAdapterPart } from "../adapter-cut.ts";
import type { StageFrame } from "./stage-frame.ts";

/** Of a frame, so that all of a file are fewer than what is held while stages join. */
const PART_BYTES = 16 * 2 ** 20;

/** Gives the stages a part of an adapter's file: its bytes, and the number of those that follow. */
type AdapterFrame = Pick<StageFrame, "adapter" | "rows" | "hidden">;

/** The frames that give all stages a file under a number. Without bytes they forget the number. */
export function* adapterFrames(adapter: number, file: Uint8Array): Generator<AdapterFrame> {
  for (let at = 0; ; at += PART_BYTES) {
    const part = file.subarray(at, at + PART_BYTES);
    const follow = Math.max(0, file.length - at - part.length);
    const hidden = new Float32Array(Math.ceil(part.length / 4));
    new Uint8Array(hidden.buffer).set(part);
    yield { adapter, rows: Int32Array.of(part.length, follow, 0), hidden };
    if (follow === 0) return;
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
  /** Of the file that comes. */
  #parts: Uint8Array[] = [];
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

  take({ adapter, rows, hidden }: AdapterFrame): void {
    const [bytes = 0, follow = 0] = rows;
    if (bytes === 0 && follow === 0) {
      this.#forget(adapter);
      return;
    }
    const { buffer, byteOffset } = hidden;
    this.#parts.push(new Uint8Array(buffer, byteOffset, bytes).slice());
    if (follow > 0) return;
    const file = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#loaded.set(adapter, loadAdapterPart(this.#llama, this.#model, file, this.#shard));
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
    this.#parts = [];
    for (const adapter of [...this.#loaded.keys()]) this.#forget(adapter);
  }
}
