import { createHash } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { DIGEST_BYTES } from "./checkpoint-format.ts";

/** Checkpoints of one job that a server keeps; the oldest are deleted first. */
const MAX_CHECKPOINTS = 8;
/** Jobs in one report of a server; the others are reported when these are gone. */
const MAX_JOBS = 4096;
const READ_BYTES = 1024 * 1024;

/** A written piece; the digest is that of all bytes before it. */
export interface WrittenPiece {
  readonly bytes: number;
  readonly sha256: Uint8Array;
}

/** The checkpoints of a job below a server's data directory, complete or not. */
export async function checkpointNames(dataDirectory: string, jobId: string): Promise<string[]> {
  const folder = join(dataDirectory, "checkpoints", plainName(jobId));
  return readdir(folder).catch(() => []);
}

/** A job with checkpoints on this server. */
export interface CheckpointedJob {
  readonly jobId: string;
  /** Since its latest checkpoint was written. */
  readonly idleMs: number;
}

/** The jobs with checkpoints below a server's data directory, `MAX_JOBS` at most. */
export async function checkpointedJobs(dataDirectory: string): Promise<CheckpointedJob[]> {
  const root = join(dataDirectory, "checkpoints");
  const jobIds = (await readdir(root).catch(() => [])).slice(0, MAX_JOBS);
  const nowMs = Date.now();
  const found: CheckpointedJob[] = [];
  for (const jobId of jobIds) {
    // It may be deleted meanwhile.
    const folder = await stat(join(root, jobId)).catch(() => undefined);
    if (folder) found.push({ jobId, idleMs: Math.max(0, Math.round(nowMs - folder.mtimeMs)) });
  }
  return found;
}

/** Deletes all checkpoints of a job; a job without any is no error. */
export async function forgetJob(dataDirectory: string, jobId: string): Promise<void> {
  const folder = join(dataDirectory, "checkpoints", plainName(jobId));
  await rm(folder, { recursive: true, force: true });
}

/**
 * Keeps the latest `keep` of a job's checkpoints; 0 for the maximum. Calls must not overlap: a
 * deletion changes a folder's time, so the folder looks like the latest.
 */
export async function forgetOldest(
  dataDirectory: string,
  jobId: string,
  keep: number,
): Promise<void> {
  const folder = join(dataDirectory, "checkpoints", plainName(jobId));
  const ages: { readonly path: string; readonly atMs: number }[] = [];
  for (const name of await checkpointNames(dataDirectory, jobId)) {
    const path = join(folder, name);
    // It may be deleted meanwhile, with its job.
    const found = await stat(path).catch(() => undefined);
    if (found) ages.push({ path, atMs: found.mtimeMs });
  }
  const kept = keep === 0 ? MAX_CHECKPOINTS : Math.min(keep, MAX_CHECKPOINTS);
  const newestFirst = ages.sort((a, b) => b.atMs - a.atMs);
  for (const { path } of newestFirst.slice(kept)) await rm(path, { recursive: true, force: true });
}

/**
 * The path of a piece below a server's data directory. Throws an AppError on a name with a path.
 */
export function piecePath(
  dataDirectory: string,
  jobId: string,
  name: string,
  shard: number,
): string {
  const folder = join(dataDirectory, "checkpoints", plainName(jobId), plainName(name));
  return join(folder, `${shard}.shard`);
}

function plainName(name: string): string {
  if (/^\w[\w.-]{0,127}$/.test(name)) return name;
  const message = `"${name}" cannot name a checkpoint: use letters, digits, "_", "-" and "."`;
  throw new AppError("invalid_value", message);
}

/** Writes a piece atomically and durably: temporary file, fsync, rename, fsync of the folder. */
export async function writePiece(
  path: string,
  pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<WrittenPiece> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = `${path}.${process.pid}.tmp`;
  let bytes = 0;
  let tail: Buffer = Buffer.alloc(0);
  try {
    const file = await open(temporary, "w", 0o600);
    try {
      for await (const piece of pieces) {
        await writeAll(file, piece);
        bytes += piece.length;
        const last = piece.subarray(Math.max(0, piece.length - DIGEST_BYTES));
        tail = Buffer.concat([tail, last]).subarray(-DIGEST_BYTES);
      }
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (cause) {
    await rm(temporary, { force: true });
    throw cause instanceof AppError ? cause : unwritable(path, cause);
  }
  for (const folder of [dirname(path), dirname(dirname(path))]) await syncFolder(folder);
  return { bytes, sha256: Uint8Array.from(tail) };
}

/** A piece's bytes from the disk. Rejects with `not_found`. */
export async function* readPiece(path: string): AsyncGenerator<Buffer> {
  const file = await openPiece(path);
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** The length of a piece. Rejects with `not_found`. */
export async function pieceSize(path: string): Promise<number> {
  const file = await openPiece(path);
  try {
    return (await file.stat()).size;
  } finally {
    await file.close();
  }
}

/** Passes a piece on, and rejects with `invalid_value` at its end where the digest differs. */
export async function* checkedPiece(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const hash = createHash("sha256");
  let tail: Buffer = Buffer.alloc(0);
  for await (const piece of pieces) {
    const joined = Buffer.concat([tail, piece]);
    const cut = Math.max(0, joined.length - DIGEST_BYTES);
    hash.update(joined.subarray(0, cut));
    tail = joined.subarray(cut);
    yield piece;
  }
  if (hash.digest().equals(tail)) return;
  throw new AppError("invalid_value", "its bytes do not match its SHA-256: it is corrupt");
}

async function openPiece(path: string): Promise<FileHandle> {
  try {
    return await open(path);
  } catch (cause) {
    const message = `this server has no checkpoint piece ${path.split("/").slice(-3).join("/")}`;
    throw new AppError("not_found", message, { cause });
  }
}

async function writeAll(file: FileHandle, piece: Uint8Array): Promise<void> {
  for (let at = 0; at < piece.length; ) {
    at += (await file.write(piece, at, piece.length - at)).bytesWritten;
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function unwritable(path: string, cause: unknown): AppError {
  const why = cause instanceof Error ? cause.message : String(cause);
  const message = `cannot write the checkpoint piece ${path}: ${why}; is the disk full?`;
  return new AppError("unavailable", message, { cause });
}
