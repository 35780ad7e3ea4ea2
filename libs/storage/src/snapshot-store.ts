import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { StorageFile, StorageFiles } from "./storage-files.ts";

/** Which snapshot: the log position whose state it holds. */
export interface SnapshotId {
  readonly index: number;
  readonly term: number;
}

/** A snapshot as the store keeps it: `detail` is JSON of the owner, kept beside the data. */
export interface SnapshotMeta extends SnapshotId {
  readonly cluster: string;
  readonly detail: unknown;
}

/** The largest piece of a snapshot; more would make one read or one message too large. */
const SNAPSHOT_MAX_CHUNK_BYTES = 1024 * 1024;

const FRAME_HEADER_BYTES = 44;
const FRAMES = { meta: 1, data: 2, end: 3 } as const;
/** The newest, and the one before it in case that the newest is damaged. */
const KEPT = 2;

/**
 * Snapshots on disk, format v1. A file is a row of frames: meta (JSON), data, end (empty). A frame
 * is, little-endian: kind u32, sequence u32, length u32, SHA-256 of those 12 bytes and the payload,
 * payload. A file gets its name only when it is complete and synced, and two are kept.
 */
export class SnapshotStore {
  readonly #files: StorageFiles;
  readonly #directory: string;
  #nextTemporary = 0;

  private constructor(files: StorageFiles, directory: string) {
    this.#files = files;
    this.#directory = directory;
  }

  /** Opens the directory, made if missing, and removes what an unfinished write left. */
  static async open(files: StorageFiles, directory: string): Promise<SnapshotStore> {
    await files.makeDirectory(directory);
    for (const name of await files.list(directory)) {
      if (name.endsWith(".tmp")) await files.remove(`${directory}/${name}`);
    }
    return new SnapshotStore(files, directory);
  }

  /** All snapshots, newest first; one that is listed may still prove to be damaged. */
  async list(): Promise<SnapshotId[]> {
    const ids: SnapshotId[] = [];
    for (const name of await this.#files.list(this.#directory)) {
      const match = /^snapshot-(\d{16})-(\d{10})\.snap$/.exec(name);
      if (match) ids.push({ index: Number(match[1]), term: Number(match[2]) });
    }
    return ids.sort((a, b) => b.index - a.index || b.term - a.term);
  }

  /** Resolves when the snapshot is on the disk under its name. */
  async write(
    meta: SnapshotMeta,
    chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const temporary = `${this.#directory}/incoming-${this.#nextTemporary++}.tmp`;
    const file = await this.#files.open(temporary, "buffered");
    try {
      await file.truncate(0);
      await writeFrames(file, meta, chunks);
      await file.sync();
    } catch (error) {
      await file.close();
      await this.#files.remove(temporary);
      throw error;
    }
    await file.close();
    await this.#files.rename(temporary, this.#path(meta));
    await this.#files.syncDirectory(this.#directory);
  }

  /** Throws `server_error` where the file's head is damaged. */
  async meta(id: SnapshotId): Promise<SnapshotMeta> {
    for await (const { kind, payload } of this.#frames(id)) {
      if (kind === FRAMES.meta) return JSON.parse(Buffer.from(payload).toString()) as SnapshotMeta;
    }
    throw damaged(this.#path(id), "it has no head");
  }

  /** The data in the pieces in which it was written; throws `server_error` at the first damage. */
  async *chunks(id: SnapshotId): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const { kind, payload } of this.#frames(id)) {
      if (kind === FRAMES.data) yield payload;
    }
  }

  /** Removes all that are older than the newest two up to the given one. */
  async prune(newest: SnapshotId): Promise<void> {
    const ids = await this.list();
    await this.#remove(ids.filter(({ index }) => index <= newest.index).slice(KEPT));
  }

  /** Removes those that were written and never put in use. */
  async removeNewer(newest: SnapshotId): Promise<void> {
    const ids = await this.list();
    await this.#remove(ids.filter(({ index }) => index > newest.index));
  }

  async #remove(ids: readonly SnapshotId[]): Promise<void> {
    for (const id of ids) await this.#files.remove(this.#path(id));
    if (ids.length > 0) await this.#files.syncDirectory(this.#directory);
  }

  async *#frames(id: SnapshotId): AsyncGenerator<{ kind: number; payload: Uint8Array }, void> {
    const path = this.#path(id);
    const file = await this.#files.open(path, "buffered");
    try {
      let position = 0;
      for (let sequence = 0; ; sequence++) {
        const frame = await readFrame(file, position, sequence);
        if (!frame)
          throw damaged(path, `the frame at byte ${position} does not match its checksum`);
        yield frame;
        if (frame.kind === FRAMES.end) return;
        position += FRAME_HEADER_BYTES + frame.payload.byteLength;
      }
    } finally {
      await file.close();
    }
  }

  #path({ index, term }: SnapshotId): string {
    const name = `snapshot-${String(index).padStart(16, "0")}-${String(term).padStart(10, "0")}`;
    return `${this.#directory}/${name}.snap`;
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

function encodeFrame(kind: number, sequence: number, payload: Uint8Array): Buffer {
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

function damaged(path: string, why: string): AppError {
  return new AppError("server_error", `the snapshot ${path} is damaged: ${why}`);
}
