import type { FileHandle } from "node:fs/promises";
import { openRegular } from "../regular-file.ts";
import { PermanentFault, reasonOf } from "../source-fault.ts";
import { AbsentRange, type RangeSource } from "./range-source.ts";

const CHUNK_BYTES = 1024 * 1024;

/** Ranges of a file on this machine. */
export function fileRanges(path: string, name: string): RangeSource {
  return {
    name,
    async *read(offset, bytes, signal) {
      const file = await openRegular(path).catch((cause: unknown) => {
        throw new PermanentFault(`it cannot be read: ${reasonOf(cause)}`, { cause });
      });
      try {
        yield* fileRange(file, offset, bytes, signal);
      } finally {
        await file.close();
      }
    },
  };
}

/** The bytes of a range of an open file, each in memory of its own. Throws AbsentRange at its end. */
export async function* fileRange(
  file: FileHandle,
  offset: number,
  bytes: number,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  for (let at = offset; at < offset + bytes; ) {
    signal?.throwIfAborted();
    const chunk = new Uint8Array(Math.min(CHUNK_BYTES, offset + bytes - at));
    const { bytesRead } = await file.read(chunk, 0, chunk.length, at);
    if (bytesRead === 0) throw new AbsentRange(`it ends at byte ${at}`);
    yield chunk.subarray(0, bytesRead);
    at += bytesRead;
  }
}
