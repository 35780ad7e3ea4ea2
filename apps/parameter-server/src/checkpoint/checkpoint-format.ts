import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { optimizerSlots } from "@heddle/training/optimizers/optimizer";
import type { ShardSlab } from "../slab/shard-slab.ts";

/**
 * A checkpoint has one piece for each shard: a magic string, the header's length, and the header as
 * JSON. Then the slab's parameters and the optimizer's slots follow as float32, little-endian, and
 * the SHA-256 of everything before it.
 */
const MAGIC = "HDLCKPT1";
export const DIGEST_BYTES = 32;
export const PREFIX_BYTES = 12;
const MAX_HEADER_BYTES = 8 * 1024 * 1024;

/** The header of a piece. */
export interface PieceHeader {
  readonly jobId: string;
  readonly shard: number;
  readonly shards: number;
  readonly version: number;
  readonly elements: number;
  /** `parameters` and the optimizer's slots. */
  readonly tensors: readonly string[];
  readonly parameters: readonly { readonly name: string; readonly shape: readonly number[] }[];
}

/** The bytes of a piece, with the digest at the end. The slab must not change meanwhile. */
export function* pieceBytes(
  spec: ShardSpec,
  slab: ShardSlab,
  version: number,
): Generator<Uint8Array> {
  const header = Buffer.from(JSON.stringify(headerOf(spec, slab, version)));
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.write(MAGIC);
  prefix.writeUInt32LE(header.length, 8);
  const hash = createHash("sha256");
  for (const piece of [
    Buffer.concat([prefix, header]),
    ...slab.kept.map((_, i) => slab.bytes(i)),
  ]) {
    hash.update(piece);
    yield piece;
  }
  yield hash.digest();
}

/** The total length of `pieceBytes`. */
export function pieceLength(spec: ShardSpec, slab: ShardSlab, version: number): number {
  const header = Buffer.byteLength(JSON.stringify(headerOf(spec, slab, version)));
  return PREFIX_BYTES + header + slab.kept.length * slab.elements * 4 + DIGEST_BYTES;
}

/** The header's length from a piece's prefix. Throws an AppError `invalid_value`. */
export function headerLength(prefix: Buffer): number {
  const length = prefix.readUInt32LE(8);
  if (prefix.toString("latin1", 0, 8) === MAGIC && length <= MAX_HEADER_BYTES) return length;
  throw new AppError("invalid_value", "it does not begin as a checkpoint does");
}

/**
 * Throws an AppError `invalid_value` where the piece does not belong to the shards that this one
 * can use.
 */
export function checkedHeader(text: Buffer, spec: ShardSpec, shard: number): PieceHeader {
  let header: PieceHeader;
  try {
    header = JSON.parse(text.toString()) as PieceHeader;
  } catch (cause) {
    throw new AppError("invalid_value", "its header is not JSON", { cause });
  }
  const tensors = ["parameters", ...optimizerSlots(spec.optimizer)];
  const wanted = [
    ["jobId", "job id", spec.jobId],
    ["shard", "shard number", shard],
    ["tensors", "list of tensors", tensors],
  ] as const;
  for (const [field, words, value] of wanted) {
    if (JSON.stringify(header[field]) === JSON.stringify(value)) continue;
    throw new AppError("invalid_value", `its ${words} is not that of the job that wants it`);
  }
  return header;
}

/**
 * Throws an AppError `unprocessable`, with the first parameter that differs, where the piece is of
 * another model. Call it after the digest was verified, since damage may change a name.
 */
export function checkForm(header: PieceHeader, spec: ShardSpec): void {
  const [had, wanted] = [header.parameters, shapesOf(spec)].map((all) =>
    all.map(({ name, shape }) => `${name} [${shape.join(", ")}]`),
  ) as [string[], string[]];
  const count = Math.max(had.length, wanted.length);
  for (let i = 0; i < count; i++) {
    if (had[i] === wanted[i]) continue;
    const [theirs, ours] = [had[i] ?? "no further one", wanted[i] ?? "no further one"];
    const message = `it is whole, but of a model of another form: it has ${theirs} where this attempt has ${ours}`;
    throw new AppError("unprocessable", message);
  }
}

function headerOf(spec: ShardSpec, slab: ShardSlab, version: number): PieceHeader {
  const { jobId, shard, servers } = spec;
  return {
    jobId,
    shard,
    shards: servers.length,
    version,
    elements: slab.elements,
    tensors: slab.kept,
    parameters: shapesOf(spec),
  };
}

function shapesOf({ parameters }: ShardSpec): PieceHeader["parameters"] {
  return parameters.map(({ name, shape }) => ({ name, shape }));
}
