/** A frame begins with its length without these four bytes. */
export const LENGTH_BYTES = 4;
/** By default more is no frame of ours. */
const MAX_FRAME_BYTES = 256 * 2 ** 20;

/** Takes frames out of the bytes of a stream, however they were cut. */
export class LengthFrameReader {
  readonly #onFrame: (bytes: Buffer, begin: number, end: number) => void;
  readonly #maxBytes: number;
  #rest: Buffer[] = [];
  #restBytes = 0;
  /** Bytes of the frame that is not whole yet, as far as they are known. */
  #wanted = LENGTH_BYTES;

  /** It is called with where a frame lies in the bytes, its length included. */
  constructor(
    onFrame: (bytes: Buffer, begin: number, end: number) => void,
    maxBytes = MAX_FRAME_BYTES,
  ) {
    this.#onFrame = onFrame;
    this.#maxBytes = maxBytes;
  }

  /** Throws where the bytes are no frames. */
  push(chunk: Buffer): void {
    if (this.#restBytes + chunk.length < this.#wanted) {
      this.#keep(chunk);
      return;
    }
    const bytes = this.#restBytes === 0 ? chunk : Buffer.concat([...this.#rest, chunk]);
    this.#rest = [];
    this.#restBytes = 0;
    let at = 0;
    for (;;) {
      this.#wanted = LENGTH_BYTES;
      if (bytes.length - at < LENGTH_BYTES) break;
      this.#wanted += bytes.readUInt32LE(at);
      if (this.#wanted > this.#maxBytes) {
        throw new Error(
          `a frame of ${this.#wanted} bytes was received, and none has over ${this.#maxBytes}`,
        );
      }
      if (bytes.length - at < this.#wanted) break;
      const end = at + this.#wanted;
      this.#onFrame(bytes, at, end);
      at = end;
    }
    // A copy: what is left of a large chunk would keep all of it.
    if (at < bytes.length) this.#keep(Buffer.from(bytes.subarray(at)));
  }

  #keep(bytes: Buffer): void {
    this.#rest.push(bytes);
    this.#restBytes += bytes.length;
  }
}
