import { readSync, writevSync } from "node:fs";
import { frameBytes, frameParts, HEADER_BYTES, readFrame, type StageFrame } from "./stage-frame.ts";

/**
 * Frames over a descriptor in blocking mode, for a thread that only computes. A frame that was read
 * lives until the next read. The methods throw where the other end is gone.
 */
export class FramePipe {
  readonly #descriptor: number;
  #memory = new ArrayBuffer(HEADER_BYTES);

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Waits for the next frame; undefined where the other end was closed between two. */
  read(): StageFrame | undefined {
    if (!this.#fill(0, HEADER_BYTES)) return undefined;
    const bytes = frameBytes(new Uint8Array(this.#memory, 0, HEADER_BYTES));
    if (bytes > this.#memory.byteLength) this.#grow(bytes);
    if (!this.#fill(HEADER_BYTES, bytes)) throw new Error("the stream of stages ended in a frame");
    return readFrame(this.#memory);
  }

  write(frame: StageFrame): void {
    const parts = frameParts(frame);
    for (let left = parts; left.length > 0; ) {
      left = without(left, writevSync(this.#descriptor, left));
    }
  }

  /** Twice as much as is needed, so that it grows a few times only. */
  #grow(bytes: number): void {
    const header = new Uint8Array(this.#memory, 0, HEADER_BYTES);
    this.#memory = new ArrayBuffer(2 * bytes);
    new Uint8Array(this.#memory).set(header);
  }

  /** False where the stream ended before the first of these bytes. */
  #fill(from: number, to: number): boolean {
    const target = new Uint8Array(this.#memory, 0, to);
    for (let at = from; at < to; ) {
      const count = readSync(this.#descriptor, target, at, to - at, null);
      if (count === 0 && at === from) return false;
      if (count === 0) throw new Error("the stream of stages ended in a frame");
      at += count;
    }
    return true;
  }
}

/** The parts without their first bytes. */
function without(parts: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let gone = bytes;
  return parts.flatMap((part) => {
    const rest = part.subarray(Math.min(gone, part.length));
    gone -= part.length - rest.length;
    return rest.length > 0 ? [rest] : [];
  });
}
