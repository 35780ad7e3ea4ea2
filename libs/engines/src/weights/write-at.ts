import type { FileHandle } from "node:fs/promises";

/** Writes all the bytes; one write may take only some of them. */
export async function writeAt(
  file: FileHandle,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}
