import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { AppError } from "@heddle/base/errors";
import type { PullLimits } from "../guarded-request.ts";
import type { SourceFailure } from "../pull-weights.ts";
import { PermanentFault, reasonOf, SourceFault } from "../source-fault.ts";
import { writeAt } from "../write-at.ts";
import { fileRange } from "./file-ranges.ts";
import { AbsentRange, NoRanges, type RangeSource, steadyRange } from "./range-source.ts";

/** A piece of the model's file, and where it goes. */
export interface WantedPiece {
  /** In the model's file. */
  readonly source: number;
  /** In the file that is written. */
  readonly target: number;
  readonly bytes: number;
  readonly sha256: string;
}

export interface PieceFetch {
  readonly pieces: readonly WantedPiece[];
  /** Tried in order for each run of pieces. */
  readonly sources: readonly RangeSource[];
  /** The sources that have failed, which are not asked again; more are added. */
  readonly failures: Map<RangeSource, SourceFailure>;
  readonly limits: PullLimits;
  readonly signal: AbortSignal;
  onProgress?(fetchedBytes: number, totalBytes: number, source: string): void;
  /** Called once for each source that fails. */
  onFault?(source: string, reason: string): void;
}

/** Bytes between two tensors that are read too rather than asking twice. */
const MAX_GAP_BYTES = 64 * 1024;
/** Then the sources are asked from the first on again, of which a near one may have the rest. */
const MAX_RUN_BYTES = 256 * 2 ** 20;

/** Resolves with how many of the first pieces the file has already, of an earlier fetch. */
export async function piecesThere(
  file: FileHandle,
  pieces: readonly WantedPiece[],
  signal: AbortSignal,
): Promise<number> {
  const { size } = await file.stat();
  for (const [i, { target, bytes, sha256 }] of pieces.entries()) {
    if (target + bytes > size) return i;
    const hash = createHash("sha256");
    for await (const chunk of fileRange(file, target, bytes, signal)) hash.update(chunk);
    if (hash.digest("hex") !== sha256) return i;
  }
  return pieces.length;
}

/**
 * Writes the pieces from the given one on, each with its digest. Where a source breaks off or gives
 * wrong bytes, the next one continues from the piece at which that was found. Resolves with the
 * sources that failed where none is left for a piece, and with undefined when all are written.
 * Throws `unavailable` where the disk takes no more.
 */
export async function fetchPieces(
  file: FileHandle,
  fetch: PieceFetch,
  first = 0,
): Promise<{ readonly failures: readonly SourceFailure[] } | undefined> {
  const { pieces, signal, failures } = fetch;
  const totalBytes = sum(pieces);
  let doneBytes = sum(pieces.slice(0, first));
  for (let at = first; at < pieces.length; ) {
    const before = at;
    const run = runFrom(pieces, at);
    const absent: SourceFailure[] = [];
    for (const source of fetch.sources) {
      if (failures.has(source)) continue;
      try {
        for await (const piece of written(file, run.slice(at - before), source, fetch)) {
          at += 1;
          doneBytes += piece.bytes;
          fetch.onProgress?.(doneBytes, totalBytes, source.name);
        }
        break;
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof SourceFault)) throw diskFault(error);
        const failure = { source: source.name, reason: reasonOf(error), error };
        if (error instanceof AbsentRange) absent.push(failure);
        else {
          failures.set(source, failure);
          fetch.onFault?.(source.name, failure.reason);
        }
      }
    }
    if (at === before) return { failures: [...failures.values(), ...absent] };
  }
  return undefined;
}

/** Whether one of the failures is of a source that gives whole files only. */
export function givesWhole(failure: SourceFailure): boolean {
  return failure.error instanceof NoRanges;
}

/** The pieces that are asked for at once, which lie one after the other. */
function runFrom(pieces: readonly WantedPiece[], at: number): readonly WantedPiece[] {
  const start = pieces[at]!.source;
  let end = start;
  let count = 0;
  for (const { source, bytes } of pieces.slice(at)) {
    const isNext = source >= end && source - end <= MAX_GAP_BYTES;
    if (!isNext || (count > 0 && source + bytes - start > MAX_RUN_BYTES)) break;
    end = source + bytes;
    count += 1;
  }
  return pieces.slice(at, at + count);
}

/** Gives each piece when it is written and has its digest. Throws a SourceFault, or of the disk. */
async function* written(
  file: FileHandle,
  run: readonly WantedPiece[],
  source: RangeSource,
  { limits, signal }: PieceFetch,
): AsyncGenerator<WantedPiece, void> {
  const offset = run[0]!.source;
  const last = run.at(-1)!;
  const chunks = steadyRange(
    source,
    { offset, bytes: last.source + last.bytes - offset },
    { limits, signal },
  );
  let position = offset;
  let hash = createHash("sha256");
  let next = 0;
  for await (const chunk of chunks) {
    const end = position + chunk.length;
    for (let piece = run[next]; piece && piece.source < end; piece = run[next]) {
      const from = Math.max(position, piece.source);
      const to = Math.min(end, piece.source + piece.bytes);
      const own = chunk.subarray(from - position, to - position);
      hash.update(own);
      await writeAt(file, own, piece.target + from - piece.source);
      if (to < piece.source + piece.bytes) break;
      checkDigest(piece, hash.digest("hex"));
      yield piece;
      hash = createHash("sha256");
      next += 1;
    }
    position = end;
  }
}

function checkDigest({ source, bytes, sha256 }: WantedPiece, found: string): void {
  if (found === sha256) return;
  throw new PermanentFault(
    `the ${bytes} bytes at ${source} have the sha256 ${found} instead of ${sha256}`,
  );
}

function diskFault(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== "ENOSPC" && code !== "EDQUOT") return error;
  const message = `the disk of the weights cache is full (${code}); free some, or set another cache folder`;
  return new AppError("unavailable", message, { cause: error });
}

function sum(pieces: readonly WantedPiece[]): number {
  return pieces.reduce((total, { bytes }) => total + bytes, 0);
}
