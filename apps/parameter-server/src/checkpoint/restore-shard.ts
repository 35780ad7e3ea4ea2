import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import { oneVersion } from "@heddle/parameters/shards/checkpoint-versions";
import { type Segment, shardLayouts } from "@heddle/parameters/shards/shard-layout";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import { fragmentsOf, type ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import type { CallerCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import type { ShardSlab } from "../slab/shard-slab.ts";
import {
  checkedHeader,
  checkForm,
  DIGEST_BYTES,
  headerLength,
  type PieceHeader,
  PREFIX_BYTES,
} from "./checkpoint-format.ts";
import { checkedPiece } from "./checkpoint-store.ts";

/** Where to look for a checkpoint. */
export interface RestoreSource {
  readonly name: string;
  /** Servers that may hold its pieces. */
  readonly sources: readonly string[];
  /** Shards of the set that wrote it. */
  readonly pieces: number;
  readonly credentials: CallerCredentials;
}

/** The time limit of one piece. */
const PIECE_MS = 300_000;

/**
 * Fills a slab from the pieces of a checkpoint of any number of shards. Returns the version.
 * Where it rejects, the slab is invalid. The codes are, by the piece that is missing:
 *
 * - `invalid_value`: it is corrupt.
 * - `unprocessable`: it is of another model.
 * - `shard_unavailable`: only a source that did not answer may have it.
 * - `not_found`: no source has it.
 */
export async function restoreShard(
  spec: ShardSpec,
  slab: ShardSlab,
  source: RestoreSource,
  signal: AbortSignal,
): Promise<number> {
  const fragments = fragmentsOf(spec);
  const layoutsOf = (shards: number) => shardLayouts(spec.parameters, shards, fragments);
  const own = layoutsOf(spec.servers.length)[spec.shard]?.segments ?? [];
  // Fragments have their own versions; the pieces of one fragment have the same.
  const fragment = Math.floor(spec.shard / (spec.servers.length / fragments));
  const first = fragment * (source.pieces / fragments);
  for (const tensor of slab.kept.keys()) slab.values(tensor).fill(0);
  let version: number | undefined;
  for (const [piece, { segments, elements }] of layoutsOf(source.pieces).entries()) {
    const moves = movesBetween(segments, own);
    // An empty shard, where there are more servers than pieces, needs a version too.
    if (moves.length === 0 && !(own.length === 0 && piece === first)) continue;
    const target = { spec, slab, moves, piece, elements };
    const found = await restorePiece(target, source, signal);
    version = oneVersion(
      version === undefined ? [found] : [version, found],
      source.name,
      "a shard",
    );
  }
  if (version === undefined) throw new Error("a shard has no parameters");
  return version;
}

/** A run of elements with another position in the new slab. */
interface Move {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

function movesBetween(before: readonly Segment[], after: readonly Segment[]): Move[] {
  return before.flatMap((old) =>
    after.flatMap((now): Move[] => {
      const begin = Math.max(old.begin, now.begin);
      const end = Math.min(old.end, now.end);
      if (old.parameter !== now.parameter || begin >= end) return [];
      const from = old.offset + begin - old.begin;
      return [{ from, to: now.offset + begin - now.begin, count: end - begin }];
    }),
  );
}

interface PieceTarget {
  readonly spec: ShardSpec;
  readonly slab: ShardSlab;
  readonly moves: readonly Move[];
  readonly piece: number;
  /** The elements of the old slab. */
  readonly elements: number;
}

async function restorePiece(
  target: PieceTarget,
  { name, sources, credentials }: RestoreSource,
  signal: AbortSignal,
): Promise<number> {
  const failures: AppError[] = [];
  for (const address of sources) {
    const peer = new Peer(address, credentials, "parameter-server", bulkChannelOptions);
    const limited = AbortSignal.any([signal, AbortSignal.timeout(PIECE_MS)]);
    try {
      const { jobId, attempt } = target.spec;
      const request = { id: { jobId, attempt, shard: target.piece }, checkpoint: name };
      const chunks = peer.serverStream(shardMethods.exportShard, request, limited);
      return await readInto(target, checkedPiece(dataOf(chunks)));
    } catch (error) {
      failures.push(toAppError(error));
    } finally {
      peer.close();
    }
  }
  const reasons = failures.map(({ message }, i) => `${sources[i]}: ${message}`).join("; ");
  throw new AppError(
    codeOf(failures.map(({ code }) => code)),
    `piece ${target.piece} of checkpoint ${name} cannot be used: ${reasons}`,
  );
}

/** An unreachable source may have an undamaged piece; one of another model makes that irrelevant. */
function codeOf(codes: readonly ErrorCode[]): ErrorCode {
  if (codes.includes("unprocessable")) return "unprocessable";
  if (codes.some((code) => code === "unavailable" || code === "deadline_exceeded")) {
    return "shard_unavailable";
  }
  return codes.includes("invalid_value") ? "invalid_value" : "not_found";
}

async function* dataOf(
  chunks: AsyncIterable<{ readonly data: Buffer }>,
): AsyncGenerator<Uint8Array> {
  for await (const { data } of chunks) yield data;
}

async function readInto(target: PieceTarget, bytes: AsyncIterable<Uint8Array>): Promise<number> {
  let head: Buffer = Buffer.alloc(0);
  let header: PieceHeader | undefined;
  let at = 0;
  for await (const chunk of bytes) {
    if (header) {
      place(target, at, chunk);
      at += chunk.length;
      continue;
    }
    head = Buffer.concat([head, chunk]);
    if (head.length < PREFIX_BYTES) continue;
    const begin = PREFIX_BYTES + headerLength(head);
    if (head.length < begin) continue;
    header = checkedHeader(head.subarray(PREFIX_BYTES, begin), target.spec, target.piece);
    at = head.length - begin;
    place(target, 0, head.subarray(begin));
  }
  if (header) checkForm(header, target.spec);
  if (header && at === header.tensors.length * target.elements * 4 + DIGEST_BYTES) {
    return header.version;
  }
  throw new AppError("invalid_value", "it is shorter or longer than it says");
}

/** Copies the elements of the moves from a chunk that begins at `at` of the old tensors. */
function place({ slab, moves, elements }: PieceTarget, at: number, chunk: Uint8Array): void {
  for (const tensor of slab.kept.keys()) {
    const start = tensor * elements * 4 - at;
    if (start >= chunk.length || start + elements * 4 <= 0) continue;
    const to = slab.bytes(tensor);
    for (const move of moves) {
      const from = start + move.from * 4;
      const begin = Math.max(0, from);
      const end = Math.min(chunk.length, from + move.count * 4);
      if (begin < end) to.set(chunk.subarray(begin, end), move.to * 4 + begin - from);
    }
  }
}
