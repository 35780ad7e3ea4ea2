import type { WeightsSpec } from "@heddle/contracts/engine";
import { Truncated } from "../../gguf/byte-source.ts";
import { type GgufFile, MAX_HEADER_BYTES, parseGguf, readGguf } from "../../gguf/gguf-reader.ts";
import { DEFAULT_PULL_LIMITS } from "../guarded-request.ts";
import {
  cachedWeights,
  noSource,
  type PullOptions,
  type SourceFailure,
  untilLate,
} from "../pull-weights.ts";
import { reasonOf } from "../source-fault.ts";
import { type RangeReading, steadyRange } from "./range-source.ts";
import { type SizedSource, weightsRanges } from "./weights-ranges.ts";

/** It is read in growing steps, so that a small one costs one small read. */
const FIRST_READ_BYTES = 2 ** 20;

/**
 * The header of a file of weights, from the cache, else from the first source that gives ranges of it.
 * No digest covers it alone, so it serves estimates only. Rejects as pullWeights does.
 */
export async function weightsHeader(spec: WeightsSpec, options: PullOptions): Promise<GgufFile> {
  return await untilLate(spec, options, (signal) => findHeader(spec, { ...options, signal }));
}

async function findHeader(spec: WeightsSpec, options: PullOptions): Promise<GgufFile> {
  const cached = await cachedWeights(spec, options);
  if (cached !== undefined) return await readGguf(cached);
  const failures: SourceFailure[] = [];
  const reading = { limits: { ...DEFAULT_PULL_LIMITS, ...options.limits }, signal: options.signal };
  for (const { ranges } of weightsRanges(spec, options)) {
    try {
      return await headerOf(ranges, reading);
    } catch (error) {
      options.signal.throwIfAborted();
      failures.push({ source: ranges.name, reason: reasonOf(error), error });
    }
  }
  throw noSource(spec, failures);
}

async function headerOf(source: SizedSource, reading: RangeReading): Promise<GgufFile> {
  const fileBytes = await source.size(reading.signal);
  for (let want = FIRST_READ_BYTES; ; want *= 4) {
    const bytes = Math.min(want, fileBytes, MAX_HEADER_BYTES);
    const pieces: Uint8Array[] = [];
    for await (const piece of steadyRange(source, { offset: 0, bytes }, reading)) {
      pieces.push(piece);
    }
    try {
      return parseGguf(Buffer.concat(pieces), fileBytes);
    } catch (error) {
      if (!(error instanceof Truncated) || bytes < want) throw error;
    }
  }
}
