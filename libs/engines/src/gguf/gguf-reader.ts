import type { FileHandle } from "node:fs/promises";
import { basename } from "node:path";
import { AppError } from "@heddle/base/errors";
import { openRegular } from "../weights/regular-file.ts";
import { reasonOf } from "../weights/source-fault.ts";
import { ByteSource, GgufFault, Truncated } from "./byte-source.ts";
import {
  alignUp,
  DEFAULT_ALIGNMENT_BYTES,
  GGUF_MAGIC,
  type GgufValue,
  MAX_DIMENSIONS,
  TENSOR_LAYOUTS,
} from "./gguf-format.ts";

/** A tensor's entry in the directory. */
export interface GgufTensorInfo {
  readonly name: string;
  /** Sizes in ggml's order: the first is the length of a row. */
  readonly shape: readonly number[];
  /** For example `Q4_K`; `type 99` where this library does not know the number. */
  readonly type: string;
  /** Bytes from the start of the file. */
  readonly offset: number;
  /** Absent where the type is not known. */
  readonly sizeBytes: number | undefined;
}

/** Everything in a GGUF file but the tensors' values. */
export interface GgufFile {
  readonly version: number;
  readonly alignment: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensorInfo[];
  readonly sizeBytes: number;
}

/** The header is read in growing steps, so that a small one costs one small read. */
const FIRST_READ_BYTES = 4 * 1024 * 1024;
/** The largest header, metadata with the vocabulary and directory together. */
export const MAX_HEADER_BYTES = 256 * 1024 * 1024;
const MAX_METADATA_ENTRIES = 65_536;
const MAX_TENSORS = 65_536;
/** llama.cpp refuses larger alignments in effect; the file format knows no bound. */
const MAX_ALIGNMENT_BYTES = 1024 * 1024;

/**
 * Reads the metadata and the tensor directory of a GGUF file, version 2 or 3, little-endian, and
 * checks that every tensor lies within the file. The file is not trusted: counts, lengths and
 * offsets are bounded, and the memory is at most a small multiple of the file's size. Throws
 * AppError `not_found` or `invalid_value`.
 */
export async function readGguf(path: string): Promise<GgufFile> {
  const file = await openFile(path);
  try {
    const { size } = await file.stat();
    return await readHeader(file, size);
  } catch (cause) {
    if (!(cause instanceof GgufFault)) throw cause;
    throw new AppError(
      "invalid_value",
      `${basename(path)} is not a usable GGUF file: ${cause.message}. A GGUF file of version 2 or 3 is needed.`,
      { param: "weights", cause },
    );
  } finally {
    await file.close();
  }
}

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await openRegular(path);
  } catch (cause) {
    const reason = reasonOf(cause);
    throw new AppError("not_found", `cannot open the model file ${basename(path)}: ${reason}`, {
      param: "weights",
      cause,
    });
  }
}

async function readHeader(file: FileHandle, fileBytes: number): Promise<GgufFile> {
  for (let want = FIRST_READ_BYTES; ; want *= 4) {
    const length = Math.min(want, fileBytes, MAX_HEADER_BYTES);
    try {
      return parseGguf(await readPrefix(file, length), fileBytes);
    } catch (error) {
      const more = error instanceof Truncated && length < Math.min(fileBytes, MAX_HEADER_BYTES);
      if (!more) throw error;
    }
  }
}

async function readPrefix(file: FileHandle, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await file.read(bytes, done, length - done, done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return bytes.subarray(0, done);
}

/**
 * Parses the beginning of a GGUF file of `fileBytes` bytes. Throws GgufFault, or its Truncated
 * where `bytes` ends within the header.
 */
export function parseGguf(bytes: Uint8Array, fileBytes: number): GgufFile {
  const source = new ByteSource(bytes, fileBytes);
  const version = readVersion(source);
  const tensorCount = source.count("tensors", MAX_TENSORS);
  const entryCount = source.count("metadata entries", MAX_METADATA_ENTRIES);
  const metadata = readMetadata(source, entryCount);
  const alignment = alignmentOf(metadata);
  const directory = Array.from({ length: tensorCount }, () => readTensorInfo(source));
  const dataStart = alignUp(source.position, alignment);
  const names = new Set<string>();
  const tensors = directory.map((tensor) => {
    if (names.has(tensor.name)) throw new GgufFault(`two tensors are named ${tensor.name}`);
    names.add(tensor.name);
    return placeTensor(tensor, dataStart, alignment, fileBytes);
  });
  return { version, alignment, metadata, tensors, sizeBytes: fileBytes };
}

function readVersion(source: ByteSource): number {
  if (source.uint32() !== GGUF_MAGIC) throw new GgufFault("it does not begin with GGUF");
  const version = source.uint32();
  if (version === 2 || version === 3) return version;
  if (version === 0x02000000 || version === 0x03000000) throw new GgufFault("it is big-endian");
  throw new GgufFault(`it has version ${version}`);
}

function readMetadata(source: ByteSource, count: number): Map<string, GgufValue> {
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < count; i++) {
    const key = source.string("a metadata key");
    if (metadata.has(key)) throw new GgufFault(`the metadata key ${key} occurs twice`);
    metadata.set(key, source.value(key));
  }
  return metadata;
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>): number {
  const entry = metadata.get("general.alignment");
  if (entry === undefined) return DEFAULT_ALIGNMENT_BYTES;
  const { value } = entry;
  const usable =
    typeof value === "number" &&
    value > 0 &&
    value <= MAX_ALIGNMENT_BYTES &&
    Number.isInteger(Math.log2(value));
  if (!usable) throw new GgufFault("general.alignment is not a power of two");
  return value;
}

/** An entry as the file has it: its offset counts from the start of the data. */
interface DirectoryEntry {
  readonly name: string;
  readonly shape: readonly number[];
  readonly typeId: number;
  readonly relativeOffset: number;
}

function readTensorInfo(source: ByteSource): DirectoryEntry {
  const name = source.string("a tensor's name");
  const dimensions = source.uint32();
  if (dimensions > MAX_DIMENSIONS) throw new GgufFault(`${name} has ${dimensions} dimensions`);
  const shape = Array.from({ length: dimensions }, () => source.size(`a size of ${name}`));
  const typeId = source.uint32();
  return { name, shape, typeId, relativeOffset: source.size(`the offset of ${name}`) };
}

function placeTensor(
  entry: DirectoryEntry,
  dataStart: number,
  alignment: number,
  fileBytes: number,
): GgufTensorInfo {
  const { name, shape, typeId, relativeOffset } = entry;
  const layout = TENSOR_LAYOUTS.get(typeId);
  const items = shape.reduce((product, size) => product * size, 1);
  if (!Number.isSafeInteger(items)) throw new GgufFault(`${name} has too many values`);
  if (layout && (shape[0] ?? 1) % layout.blockItems !== 0) {
    throw new GgufFault(`rows of ${shape[0]} values of ${name} cannot be ${layout.name}`);
  }
  if (relativeOffset % alignment !== 0) throw new GgufFault(`${name} is not aligned`);
  const offset = dataStart + relativeOffset;
  const sizeBytes = layout && (items / layout.blockItems) * layout.blockBytes;
  if (offset + (sizeBytes ?? 0) > fileBytes) {
    throw new GgufFault(`${name} ends past the end of the file: the file is cut off`);
  }
  return { name, shape, type: layout?.name ?? `type ${typeId}`, offset, sizeBytes };
}
