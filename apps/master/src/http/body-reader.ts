import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { AppError } from "@heddle/base/errors";

/** Bytes of an oversize body that are read and dropped, so that its sender can read the 413. */
const MAX_DROPPED_BYTES = 64 * 1024 * 1024;
/** Overhead per chunk, so that a body of many small chunks cannot evade the bound. */
const CHUNK_OVERHEAD_BYTES = 256;

type Done = (error: AppError | null, body?: Buffer) => void;

/** Reads whole request bodies, with a bound per body and one for all that are being read. */
export class BodyReader {
  readonly #maxBytes: number;
  readonly #maxReadingBytes: number;
  #readingBytes = 0;

  constructor(maxBytes: number, maxReadingBytes: number) {
    this.#maxBytes = maxBytes;
    this.#maxReadingBytes = maxReadingBytes;
  }

  /**
   * Throws refusals that follow from the headers: `request_too_large` by the declared length,
   * `unsupported_media_type` for a compressed body, and `overloaded` at the total bound.
   */
  checkHeaders(headers: IncomingHttpHeaders): void {
    const declared = headers["content-length"];
    if (declared !== undefined && Number(declared) > this.#maxBytes) throw this.#tooLarge();
    this.checkEncoding(headers);
    if (declared !== undefined && this.#readingBytes + Number(declared) > this.#maxReadingBytes) {
      throw this.#overloaded();
    }
  }

  /** Throws `unsupported_media_type` for a compressed body. */
  checkEncoding({ "content-encoding": encoding }: IncomingHttpHeaders): void {
    if (encoding === undefined || encoding.trim().toLowerCase() === "identity") return;
    throw compressed(encoding);
  }

  /** Reads a body to its end. Its bytes count until it is complete or abandoned. */
  read(message: IncomingMessage, done: Done): void {
    const chunks: Buffer[] = [];
    let received = 0;
    let held = 0;
    const letGo = (): void => {
      this.#readingBytes -= held;
      held = 0;
    };
    const finish = (error: AppError | null): void => {
      message.off("data", onData);
      message.off("end", onEnd);
      message.off("close", onClose);
      letGo();
      if (error) done(error);
      else done(null, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
    };
    const onData = (chunk: Buffer): void => {
      received += chunk.length;
      if (received > this.#maxBytes) {
        chunks.length = 0;
        letGo();
        if (received > this.#maxBytes + MAX_DROPPED_BYTES) finish(this.#tooLarge());
        return;
      }
      const bytes = chunk.length + CHUNK_OVERHEAD_BYTES;
      if (this.#readingBytes + bytes > this.#maxReadingBytes) {
        finish(this.#overloaded());
        return;
      }
      held += bytes;
      this.#readingBytes += bytes;
      chunks.push(chunk);
    };
    const onEnd = (): void => finish(received > this.#maxBytes ? this.#tooLarge() : null);
    const onClose = (): void =>
      finish(new AppError("cancelled", "The client closed the connection."));
    message.on("data", onData);
    message.on("end", onEnd);
    message.on("close", onClose);
  }

  #tooLarge(): AppError {
    return new AppError("request_too_large", `The body is larger than ${this.#maxBytes} bytes.`);
  }

  #overloaded(): AppError {
    const message = `This master reads as many bodies as it has memory for (${this.#maxReadingBytes} bytes). Try again shortly.`;
    return new AppError("overloaded", message, { retryAfterMs: 1000 });
  }
}

function compressed(encoding: string): AppError {
  const message = `The body has the header \`Content-Encoding: ${encoding}\`, which is not supported: send it uncompressed and leave the header out.`;
  return new AppError("unsupported_media_type", message);
}
