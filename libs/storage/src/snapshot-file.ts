import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { sealedBy } from "@heddle/base/secret-keys";
import type { StorageFile, StorageFiles } from "./storage-files.ts";

/** The log position whose state a snapshot holds. */
export interface SnapshotId {
  readonly index: number;
  readonly term: number;
}

/** The metadata in a snapshot's file: `detail` is JSON of the owner. */
export interface SnapshotMeta extends SnapshotId {
  readonly cluster: string;
  readonly detail: unknown;
}

/** The largest chunk of a snapshot; it bounds the memory of one read and of one message. */
export const SNAPSHOT_MAX_CHUNK_BYTES = 1024 * 1024;

export const FRAME_HEADER_BYTES = 44;
/** Backups have contents too; readers of snapshots pass over them. */
export const FRAMES = { meta: 1, data: 2, end: 3, content: 4, contentData: 5 } as const;

/**
 * Writes a snapshot, format v1, and syncs it; an incomplete file is removed. Backups have this
 * format too.
 *
 * - A file is a sequence of frames: meta (JSON), data, end (empty).
 * - A frame is, little-endian: kind u32, sequence u32, length u32, SHA-256 of those 12 bytes and
 *   the payload, payload.
 * - So a reader detects a changed, lost, repeated or missing frame.
 */
export async function writeSnapshotFile(
  files: StorageFiles,
  path: string,
  meta: SnapshotMeta,
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const file = await files.open(path, "buffered");
  try {
    await file.truncate(0);
    await writeFrames(file, meta, chunks);
    await file.sync();
  } catch (error) {
    await file.close();
    await files.remove(path);
    throw error;
  }
  await file.close();
}

/** The metadata of the file; throws `server_error` if its head is damaged. */
export async function readSnapshotMeta(files: StorageFiles, path: string): Promise<SnapshotMeta> {
  for await (const { kind, payload } of readFrames(files, path)) {
    if (kind === FRAMES.meta) return JSON.parse(Buffer.from(payload).toString()) as SnapshotMeta;
  }
  throw damaged(path, "it has no head");
}

/** The data in the chunks of the writer; throws `server_error` at the first damage. */
export async function* readSnapshotChunks(
  files: StorageFiles,
  path: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { kind, payload } of readFrames(files, path)) {
    if (kind === FRAMES.data) yield payload;
  }
}

/** The id of the secrets key that encrypts the data; undefined if they are in clear text. */
export async function snapshotKey(files: StorageFiles, path: string): Promise<string | undefined> {
  const chunks = readSnapshotChunks(files, path);
  const first = await chunks.next();
  await chunks.return();
  return first.done ? undefined : sealedBy(first.value);
}

/** All frames of a file, the last one included; throws `server_error` at the first damage. */
export async function* readFrames(
  files: StorageFiles,
  path: string,
): AsyncGenerator<{ kind: number; payload: Uint8Array }, void> {
  const file = await openWritten(files, path);
  try {
    let position = 0;
    for (let sequence = 0; ; sequence++) {
      const frame = await readFrame(file, position, sequence);
      if (!frame) throw damaged(path, `the frame at byte ${position} does not match its checksum`);
      yield frame;
      position += FRAME_HEADER_BYTES + frame.payload.byteLength;
      if (frame.kind === FRAMES.end) break;
    }
    const isLonger = (await file.size()) > position;
    if (isLonger) throw damaged(path, `it continues after its end, byte ${position}`);
  } finally {
    await file.close();
  }
}

async function writeFrames(
  file: StorageFile,
  meta: SnapshotMeta,
  chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  let position = 0;
  let sequence = 0;
  const put = async (kind: number, payload: Uint8Array): Promise<void> => {
    if (payload.byteLength > SNAPSHOT_MAX_CHUNK_BYTES) throw new RangeError("chunk too big");
    const frame = encodeFrame(kind, sequence++, payload);
    await file.write(frame, position);
    position += frame.byteLength;
  };
  await put(FRAMES.meta, Buffer.from(JSON.stringify(meta)));
  for await (const chunk of chunks) await put(FRAMES.data, chunk);
  await put(FRAMES.end, new Uint8Array(0));
}

export function encodeFrame(kind: number, sequence: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + payload.byteLength);
  frame.writeUInt32LE(kind, 0);
  frame.writeUInt32LE(sequence, 4);
  frame.writeUInt32LE(payload.byteLength, 8);
  digest(frame.subarray(0, 12), payload).copy(frame, 12);
  frame.set(payload, FRAME_HEADER_BYTES);
  return frame;
}

async function readFrame(
  file: StorageFile,
  position: number,
  sequence: number,
): Promise<{ kind: number; payload: Uint8Array } | undefined> {
  const header = Buffer.from(await file.read(FRAME_HEADER_BYTES, position));
  if (header.byteLength < FRAME_HEADER_BYTES) return undefined;
  const length = header.readUInt32LE(8);
  if (header.readUInt32LE(4) !== sequence || length > SNAPSHOT_MAX_CHUNK_BYTES) return undefined;
  const payload = await file.read(length, position + FRAME_HEADER_BYTES);
  if (!digest(header.subarray(0, 12), payload).equals(header.subarray(12))) return undefined;
  return { kind: header.readUInt32LE(0), payload };
}

function digest(head: Uint8Array, payload: Uint8Array): Buffer {
  return createHash("sha256").update(head).update(payload).digest();
}

async function openWritten(files: StorageFiles, path: string): Promise<StorageFile> {
  try {
    return await files.open(path, "read");
  } catch (cause) {
    const message = `the snapshot ${path} cannot be read: ${(cause as Error).message}`;
    throw new AppError("server_error", message, { cause });
  }
}

function damaged(path: string, why: string): AppError {
  return new AppError("server_error", `the snapshot ${path} is damaged: ${why}`);
}
