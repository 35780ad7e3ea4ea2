import { frameBytes, HEADER_BYTES } from "./stage-frame.ts";

/** Counts the frames of a stream of bytes, and copies their headers only. */
export class FrameMeter {
  readonly #header = new Uint8Array(HEADER_BYTES);
  /** Bytes of the frame that have passed. */
  #at = 0;

  /** The number of frames that these bytes complete. Throws `invalid_value` for malformed ones. */
  push(bytes: Uint8Array): number {
    let frames = 0;
    for (let from = 0; from < bytes.length; ) {
      if (this.#at < HEADER_BYTES) {
        const part = bytes.subarray(from, from + HEADER_BYTES - this.#at);
        this.#header.set(part, this.#at);
        this.#at += part.length;
        from += part.length;
        if (this.#at < HEADER_BYTES) break;
      }
      const left = frameBytes(this.#header) - this.#at;
      const taken = Math.min(left, bytes.length - from);
      this.#at += taken;
      from += taken;
      if (taken < left) break;
      frames++;
      this.#at = 0;
    }
    return frames;
  }
}
