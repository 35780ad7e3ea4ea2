import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import type { GgufValue } from "./gguf-format.ts";
import { type GgufEntry, layOutGguf, tensorItems } from "./gguf-header.ts";
import { encodeTensor, type WritableTensorType } from "./tensor-encoding.ts";

/** A tensor to write. */
export interface GgufTensor extends GgufEntry {
  readonly type: WritableTensorType;
  /** An array that comes twice in a row is unchanged, and encoded once. */
  readonly isTiled?: boolean | undefined;
  /**
   * The values, row after row, in pieces, so that no tensor need be in memory as a whole.
   * A piece has any length, for Q8_0 a multiple of 32. Called once.
   */
  values(): Iterable<Float32Array> | AsyncIterable<Float32Array>;
}

/** What a GGUF file holds. `general.alignment` (uint32) in the metadata sets the alignment. */
export interface GgufContent {
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
}

/**
 * Writes a GGUF version 3 file. The file appears under `path` when it is whole and on disk; on
 * failure nothing is left.
 */
export async function writeGguf(path: string, content: GgufContent): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    const file = await open(temporary, "wx");
    try {
      await writeContent(file, content);
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

async function writeContent(file: FileHandle, content: GgufContent): Promise<void> {
  const { header, places, sizeBytes } = layOutGguf(content.metadata, content.tensors);
  await writeAll(file, header);
  for (const [i, tensor] of content.tensors.entries()) {
    await writeTensor(file, tensor);
    const end = places[i]!.offset + places[i]!.sizeBytes;
    await writeAll(file, new Uint8Array((places[i + 1]?.offset ?? sizeBytes) - end));
  }
}

async function writeTensor(file: FileHandle, tensor: GgufTensor): Promise<void> {
  let items = 0;
  let last: { readonly piece: Float32Array; readonly bytes: Uint8Array } | undefined;
  for await (const piece of tensor.values()) {
    items += piece.length;
    if (!tensor.isTiled || last?.piece !== piece)
      last = { piece, bytes: encodeTensor(tensor.type, piece) };
    await writeAll(file, last.bytes);
  }
  const expected = tensorItems(tensor);
  assert(items === expected, `${tensor.name} gave ${items} values, its shape needs ${expected}`);
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await file.write(bytes, done)).bytesWritten;
  }
}
