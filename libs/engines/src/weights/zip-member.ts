import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import type { Readable } from "node:stream";
import { createInflateRaw } from "node:zlib";
import { PermanentFault } from "./source-fault.ts";

const END_SIGNATURE = 0x06054b50;
const ZIP64_LOCATOR_SIGNATURE = 0x07064b50;
const ZIP64_END_SIGNATURE = 0x06064b50;
const ENTRY_SIGNATURE = 0x02014b50;
const LOCAL_SIGNATURE = 0x04034b50;
const END_BYTES = 22;
const LOCAL_BYTES = 30;
const MAX_COMMENT_BYTES = 65_535;
const MAX_DIRECTORY_BYTES = 64 * 1024 * 1024;
const STORED = 0;
const DEFLATED = 8;

/** A file within an archive, as a stream of its plain bytes. */
export interface ArchiveMember {
  readonly sizeBytes: number;
  readonly content: Readable;
}

interface ZipEntry {
  readonly method: number;
  readonly compressedBytes: number;
  readonly sizeBytes: number;
  readonly localOffset: number;
}

/**
 * Opens one file of a zip archive (PKWARE APPNOTE 6.3.10; stored or deflated, zip64 too), found
 * through the central directory. The caller checks the content's digest and bounds its size.
 */
export async function openZipMember(archivePath: string, name: string): Promise<ArchiveMember> {
  const file = await open(archivePath, "r");
  try {
    const entry = await findEntry(file, name);
    if (!entry) throw new PermanentFault(`the package has no file ${name}`);
    const start = await dataOffset(file, entry);
    return { sizeBytes: entry.sizeBytes, content: contentOf(archivePath, entry, start) };
  } finally {
    await file.close();
  }
}

function contentOf(archivePath: string, entry: ZipEntry, start: number): Readable {
  const end = start + entry.compressedBytes - 1;
  const raw = createReadStream(archivePath, { start, end });
  if (entry.method === STORED) return raw;
  if (entry.method !== DEFLATED) {
    raw.destroy();
    throw new PermanentFault(`the package uses the zip method ${entry.method}`);
  }
  const inflate = createInflateRaw();
  raw.once("error", (error) => inflate.destroy(error));
  return raw.pipe(inflate);
}

async function findEntry(file: FileHandle, name: string): Promise<ZipEntry | undefined> {
  const { offset, size } = await locateDirectory(file);
  if (size > MAX_DIRECTORY_BYTES) throw new PermanentFault("the package's directory is too large");
  const directory = await readAt(file, offset, size);
  for (let at = 0; at + 46 <= size; ) {
    if (directory.readUInt32LE(at) !== ENTRY_SIGNATURE) break;
    const nameBytes = directory.readUInt16LE(at + 28);
    const extraBytes = directory.readUInt16LE(at + 30);
    const commentBytes = directory.readUInt16LE(at + 32);
    const extra = directory.subarray(at + 46 + nameBytes, at + 46 + nameBytes + extraBytes);
    if (directory.toString("utf8", at + 46, at + 46 + nameBytes) === name) {
      return readEntry(directory, at, extra);
    }
    at += 46 + nameBytes + extraBytes + commentBytes;
  }
  return undefined;
}

function readEntry(directory: Buffer, at: number, extra: Buffer): ZipEntry {
  if (directory.readUInt16LE(at + 8) & 1) throw new PermanentFault("the package is encrypted");
  // A field that overflows 32 bits is all ones there, and the zip64 extra has it, in this order.
  const wide = zip64Fields(extra);
  const field = (offset: number) => {
    const value = directory.readUInt32LE(at + offset);
    return value === 0xffffffff ? (wide.shift() ?? value) : value;
  };
  const sizeBytes = field(24);
  const compressedBytes = field(20);
  const localOffset = field(42);
  return { method: directory.readUInt16LE(at + 10), compressedBytes, sizeBytes, localOffset };
}

function zip64Fields(extra: Buffer): number[] {
  for (let at = 0; at + 4 <= extra.length; ) {
    const length = extra.readUInt16LE(at + 2);
    if (extra.readUInt16LE(at) === 1 && at + 4 + length <= extra.length) {
      const count = Math.floor(length / 8);
      return Array.from({ length: count }, (_, i) => Number(extra.readBigUInt64LE(at + 4 + i * 8)));
    }
    at += 4 + length;
  }
  return [];
}

async function locateDirectory(file: FileHandle): Promise<{ offset: number; size: number }> {
  const { size: fileBytes } = await file.stat();
  const tailBytes = Math.min(fileBytes, END_BYTES + MAX_COMMENT_BYTES);
  const tail = await readAt(file, fileBytes - tailBytes, tailBytes);
  for (let at = tail.length - END_BYTES; at >= 0; at--) {
    if (tail.readUInt32LE(at) !== END_SIGNATURE) continue;
    const wide = await locateWideDirectory(file, tail, at);
    return wide ?? { size: tail.readUInt32LE(at + 12), offset: tail.readUInt32LE(at + 16) };
  }
  throw new PermanentFault("the package is not a zip archive");
}

async function locateWideDirectory(file: FileHandle, tail: Buffer, endAt: number) {
  const at = endAt - 20;
  if (at < 0 || tail.readUInt32LE(at) !== ZIP64_LOCATOR_SIGNATURE) return undefined;
  const record = await readAt(file, Number(tail.readBigUInt64LE(at + 8)), 56);
  if (record.readUInt32LE(0) !== ZIP64_END_SIGNATURE) return undefined;
  return {
    size: Number(record.readBigUInt64LE(40)),
    offset: Number(record.readBigUInt64LE(48)),
  };
}

async function dataOffset(file: FileHandle, entry: ZipEntry): Promise<number> {
  const local = await readAt(file, entry.localOffset, LOCAL_BYTES);
  if (local.readUInt32LE(0) !== LOCAL_SIGNATURE) throw new PermanentFault("the zip is damaged");
  return entry.localOffset + LOCAL_BYTES + local.readUInt16LE(26) + local.readUInt16LE(28);
}

async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, position);
  if (bytesRead !== length) throw new PermanentFault("the zip archive is cut off");
  return buffer;
}
