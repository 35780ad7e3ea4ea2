import type { FileHandle } from "node:fs/promises";
import type { OpenedFile } from "./replica.ts";

const CHUNK_BYTES = 256 * 1024;

/** A file of a file system; its handle is closed with it. */
export async function openedFile(file: FileHandle): Promise<OpenedFile> {
  const { size: bytes } = await file.stat();
  const read = async function* (offset: number, end: number): AsyncGenerator<Buffer> {
    for (let at = offset; at < end; ) {
      const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, end - at));
      const { bytesRead } = await file.read(chunk, 0, chunk.byteLength, at);
      if (bytesRead === 0) return;
      yield chunk.subarray(0, bytesRead);
      at += bytesRead;
    }
  };
  return { bytes, read, close: () => file.close() };
}
