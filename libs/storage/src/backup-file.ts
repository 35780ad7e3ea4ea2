import { AppError } from "@heddle/base/errors";
import {
  encodeFrame,
  FRAME_HEADER_BYTES,
  FRAMES,
  readFrames,
  SNAPSHOT_MAX_CHUNK_BYTES,
} from "./snapshot-file.ts";
import type { StorageFiles } from "./storage-files.ts";

/** A document's content in a backup. */
export interface BackupContent {
  /** SHA-256, hexadecimal. */
  readonly digest: string;
  /** Its file as it is on a master's disk; undefined where no master has it. */
  readonly file: Uint8Array | undefined;
}

/** The largest file: the largest content, encrypted. */
const MAX_FILE_BYTES = 65 * 2 ** 20;

interface ContentHead {
  readonly digest: string;
  readonly bytes: number | null;
}

/**
 * The bytes of a backup: a snapshot's file, with contents between its data and its end. A reader of
 * snapshots passes over them.
 */
export async function* backupBytes(
  snapshot: AsyncIterable<Uint8Array>,
  contents: AsyncIterable<BackupContent>,
): AsyncGenerator<Uint8Array, void> {
  let end: Buffer = Buffer.alloc(0);
  for await (const chunk of snapshot) {
    const bytes = Buffer.concat([end, chunk]);
    // The last frame has no payload.
    const rest = Math.max(0, bytes.byteLength - FRAME_HEADER_BYTES);
    end = bytes.subarray(rest);
    if (rest > 0) yield bytes.subarray(0, rest);
  }
  if (end.byteLength < FRAME_HEADER_BYTES || end.readUInt32LE(0) !== FRAMES.end) {
    throw new AppError("server_error", "the snapshot of the backup has no end");
  }
  let sequence = end.readUInt32LE(4);
  for await (const { digest, file } of contents) {
    const head: ContentHead = { digest, bytes: file?.byteLength ?? null };
    yield encodeFrame(FRAMES.content, sequence++, Buffer.from(JSON.stringify(head)));
    for (let at = 0; file && at < file.byteLength; at += SNAPSHOT_MAX_CHUNK_BYTES) {
      const part = file.subarray(at, at + SNAPSHOT_MAX_CHUNK_BYTES);
      yield encodeFrame(FRAMES.contentData, sequence++, part);
    }
  }
  yield encodeFrame(FRAMES.end, sequence, new Uint8Array(0));
}

/** The contents in a backup; throws `server_error` at the first damage. */
export async function* readBackupContents(
  files: StorageFiles,
  path: string,
): AsyncGenerator<BackupContent, void> {
  const damaged = (why: string) =>
    new AppError("server_error", `the backup ${path} is damaged: ${why}`);
  let open:
    | { readonly digest: string; readonly bytes: number; readonly parts: Uint8Array[] }
    | undefined;
  let held = 0;
  for await (const { kind, payload } of readFrames(files, path)) {
    if (kind === FRAMES.content) {
      if (open) throw damaged(`the content ${open.digest} is not whole`);
      const { digest, bytes } = JSON.parse(Buffer.from(payload).toString()) as ContentHead;
      if (bytes === null) yield { digest, file: undefined };
      else if (bytes > MAX_FILE_BYTES) throw damaged(`the content ${digest} has ${bytes} bytes`);
      else open = { digest, bytes, parts: [] };
      held = 0;
    } else if (kind === FRAMES.contentData && open) {
      open.parts.push(payload);
      held += payload.byteLength;
    }
    if (open && held >= open.bytes) {
      yield { digest: open.digest, file: Buffer.concat(open.parts) };
      open = undefined;
    }
  }
}

/** How many contents a backup has, and how many no master had; reads and checks all of the file. */
export async function checkBackup(
  files: StorageFiles,
  path: string,
): Promise<{ readonly contents: number; readonly missing: number }> {
  let [contents, missing] = [0, 0];
  for await (const { file } of readBackupContents(files, path)) {
    if (file) contents++;
    else missing++;
  }
  return { contents, missing };
}

/** Describes the contents of a backup for its owner. */
export function contentsText({
  contents,
  missing,
}: Awaited<ReturnType<typeof checkBackup>>): string {
  const lost = missing > 0 ? `; ${missing} were on no master that answered` : "";
  return `the contents of ${contents} documents are in it${lost}`;
}
