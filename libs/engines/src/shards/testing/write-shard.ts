import { randomUUID } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { AppError } from "@heddle/base/errors";
import { writeAt } from "../../weights/write-at.ts";
import type { ShardCut } from "../shard-cut.ts";

/** Reads a range of the model's file, in pieces. */
export type ReadRange = (offset: number, bytes: number) => AsyncIterable<Uint8Array>;

/**
 * Writes a shard as a sparse file: holes take no room on the disk. The file appears under `path`
 * when it is whole and on disk; on failure nothing is left. Throws an AppError `unavailable` where
 * a range gives fewer or more bytes than it has.
 */
export async function writeShard(path: string, cut: ShardCut, read: ReadRange): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    const file = await open(temporary, "wx");
    try {
      await file.truncate(cut.sizeBytes);
      await writeAt(file, cut.header, 0);
      for (const { source, target, bytes } of cut.ranges) {
        let done = 0;
        for await (const piece of read(source, bytes)) {
          if (done + piece.length > bytes) throw wrongLength(source, bytes, done + piece.length);
          await writeAt(file, piece, target + done);
          done += piece.length;
        }
        if (done !== bytes) throw wrongLength(source, bytes, done);
      }
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

function wrongLength(source: number, wanted: number, got: number): AppError {
  const message = `the model's file gave ${got} bytes at ${source} in place of ${wanted}`;
  return new AppError("unavailable", message);
}
