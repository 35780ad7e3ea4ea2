import type { StageFrame } from "./stage-frame.ts";

/** The bytes of a frame, so that those of a file are fewer than what is held while stages join. */
export const FRAME_PART_BYTES = 16 * 2 ** 20;

/** A part of some bytes. In place of a row: its bytes, those that follow, and a number of its own. */
export type BytesFrame = Pick<StageFrame, "rows" | "hidden">;

/** The part that begins there. */
export function bytesFrame(bytes: Uint8Array, at: number, own = 0): BytesFrame {
  const part = bytes.subarray(at, at + FRAME_PART_BYTES);
  const hidden = new Float32Array(Math.ceil(part.length / 4));
  new Uint8Array(hidden.buffer).set(part);
  return { rows: Int32Array.of(part.length, bytes.length - at - part.length, own), hidden };
}

/** Joins the parts that come one after the other. */
export class ComingBytes {
  #parts: Uint8Array[] = [];

  /** All of them with the last part, else undefined. The frame's memory may be used again. */
  take({ rows, hidden }: BytesFrame): Uint8Array | undefined {
    const [bytes = 0, follow = 0] = rows;
    const { buffer, byteOffset } = hidden;
    this.#parts.push(new Uint8Array(buffer, byteOffset, bytes).slice());
    if (follow > 0) return undefined;
    const all = Buffer.concat(this.#parts);
    this.clear();
    return all;
  }

  clear(): void {
    this.#parts = [];
  }
}
