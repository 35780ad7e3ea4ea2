import type { IncomingMessage } from "node:http";
import { AppError } from "@heddle/base/errors";

/** Bytes of an oversize body that are read and dropped, so that its sender gets to read the 413. */
const MAX_DROPPED_BYTES = 64 * 1024 * 1024;

type Done = (error: AppError | null, body?: Buffer) => void;

/**
 * Reads a request's body whole; more than `maxBytes` is `request_too_large`, and a compressed one
 * `unsupported_media_type`.
 */
export function readBody(message: IncomingMessage, maxBytes: number, done: Done): void {
  const chunks: Buffer[] = [];
  let received = 0;
  const finish = (error: AppError | null): void => {
    message.off("data", onData);
    message.off("end", onEnd);
    message.off("close", onClose);
    if (error) done(error);
    else done(null, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
  };
  const onData = (chunk: Buffer): void => {
    received += chunk.length;
    if (received <= maxBytes) chunks.push(chunk);
    else if (received > maxBytes + MAX_DROPPED_BYTES) finish(tooLarge(maxBytes));
    else chunks.length = 0;
  };
  const onEnd = (): void => finish(received > maxBytes ? tooLarge(maxBytes) : null);
  const onClose = (): void => finish(new AppError("cancelled", "The client hung up."));
  const encoding = message.headers["content-encoding"];
  if (encoding !== undefined && encoding.trim().toLowerCase() !== "identity") {
    finish(compressed(encoding));
    return;
  }
  if (Number(message.headers["content-length"]) > maxBytes + MAX_DROPPED_BYTES) {
    finish(tooLarge(maxBytes));
    return;
  }
  message.on("data", onData);
  message.on("end", onEnd);
  message.on("close", onClose);
}

function compressed(encoding: string): AppError {
  const message = `The body has the header \`Content-Encoding: ${encoding}\`, which is not supported: send it uncompressed and leave the header out.`;
  return new AppError("unsupported_media_type", message);
}

function tooLarge(maxBytes: number): AppError {
  return new AppError("request_too_large", `The body is larger than ${maxBytes} bytes.`);
}
