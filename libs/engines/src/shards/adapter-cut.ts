import { rmSync, writeFileSync } from "node:fs";
import { AppError } from "@heddle/base/errors";
import { layOutGguf } from "../gguf/gguf-header.ts";
import { parseGguf } from "../gguf/gguf-reader.ts";
import type { Llama } from "../llama/native/bindings.ts";
import type { Pointer } from "../llama/native/layouts.ts";
import type { BlockRange } from "./shard-cut.ts";

/** The shard that an adapter's part is for. */
export interface AdaptedShard extends BlockRange {
  readonly path: string;
  readonly isLast: boolean;
}

const BLOCK = /^blk\.(\d+)\.(.*)$/;

/**
 * The part of a LoRA adapter's file that changes the blocks of a shard, as an adapter whose blocks
 * count from 0, as the shard's do. Throws an AppError `invalid_value` where it is for another
 * model.
 */
function cutAdapter(file: Uint8Array, shard: Omit<AdaptedShard, "path">): Uint8Array {
  const { metadata, tensors } = parseGguf(file, file.length);
  const pieces = tensors.flatMap(({ name, ...tensor }) => {
    const own = nameInShard(name, shard);
    return own === undefined ? [] : [{ ...tensor, name: own }];
  });
  const { header, places, sizeBytes } = layOutGguf(metadata, pieces);
  const cut = new Uint8Array(sizeBytes);
  cut.set(header);
  for (const [i, { offset }] of pieces.entries()) {
    const { offset: target, sizeBytes: bytes } = places[i]!;
    cut.set(file.subarray(offset, offset + bytes), target);
  }
  return cut;
}

/** Undefined where the shard lacks the tensor that is changed. */
function nameInShard(
  name: string,
  { from, to, isLast }: Omit<AdaptedShard, "path">,
): string | undefined {
  const [, digits, rest] = BLOCK.exec(name) ?? [];
  if (digits !== undefined) {
    const block = Number(digits);
    if (isLast && block >= to) {
      throw new AppError("invalid_value", `the adapter changes block ${block} of ${to}`);
    }
    return block < from || block >= to ? undefined : `blk.${block - from}.${rest}`;
  }
  if (name.startsWith("output")) return isLast ? name : undefined;
  // The last shard may have the embeddings as its output.
  if (name.startsWith("token_embd.")) return from === 0 || isLast ? name : undefined;
  return name;
}

/** Loads what changes the shard; null where the adapter is none of the model, or the disk is full. */
export function loadAdapterPart(
  llama: Llama,
  model: Pointer,
  file: Uint8Array,
  shard: AdaptedShard,
): Pointer {
  // Other replicas may have the same shard's file.
  const path = `${shard.path}.${process.pid}.adapter`;
  try {
    // The library takes files only, and has read them when it returns.
    writeFileSync(path, cutAdapter(file, shard));
    return llama.adapter_lora_init(model, path);
  } catch {
    return null;
  } finally {
    rmSync(path, { force: true });
  }
}
