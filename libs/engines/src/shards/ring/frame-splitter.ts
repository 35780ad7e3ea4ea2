import { frameBytes, HEADER_BYTES } from "./stage-frame.ts";

/** Cuts a stream of bytes into whole frames. */
export class FrameSplitter {
  #pieces: Uint8Array[] = [];
  #held = 0;
  /** The size of the frame that has begun; 0 while its header is not whole. */
  #wanted = 0;

  /** The frames that these bytes complete. Throws `invalid_value` for malformed ones. */
  push(bytes: Uint8Array): Buffer[] {
    this.#pieces.push(bytes);
    this.#held += bytes.length;
    if (this.#held < (this.#wanted || HEADER_BYTES)) return [];
    let rest = this.#pieces.length === 1 ? Buffer.from(bytes) : Buffer.concat(this.#pieces);
    const frames: Buffer[] = [];
    for (;;) {
      this.#wanted = rest.length < HEADER_BYTES ? 0 : frameBytes(rest);
      if (this.#wanted === 0 || rest.length < this.#wanted) break;
      frames.push(rest.subarray(0, this.#wanted));
      rest = rest.subarray(this.#wanted);
    }
    this.#pieces = rest.length > 0 ? [rest] : [];
    this.#held = rest.length;
    return frames;
  }
}
