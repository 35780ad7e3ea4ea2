import { stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { GgufFault } from "../../gguf/byte-source.ts";
import { DEFAULT_PULL_LIMITS } from "../guarded-request.ts";
import {
  cachedWeights,
  type Failure,
  noSource,
  type PullOptions,
  pullWeights,
} from "../pull-weights.ts";
import { PermanentFault, reasonOf } from "../source-fault.ts";
import { fileRanges } from "./file-ranges.ts";
import { NoRanges, steadyRange } from "./range-source.ts";
import { type IndexedFile, IndexPass } from "./tensor-index.ts";
import { type SizedSource, weightsRanges } from "./weights-ranges.ts";

export interface IndexedWeights extends IndexedFile {
  /** Where the whole file lies on this machine, if it does. */
  readonly path?: string;
}

/**
 * The index of a file of weights, from one read of all of it: of the cache's file where it is there,
 * else from the first source that gives a file with the right digest. What comes from elsewhere is
 * not kept, but where the source gives whole files only. Rejects as pullWeights does.
 */
export async function indexWeights(
  spec: WeightsSpec,
  options: PullOptions,
): Promise<IndexedWeights> {
  const cached = await cachedWeights(spec, options);
  if (cached !== undefined) return await passOverFile(cached, spec, options);
  const failures: Failure[] = [];
  for (const { source, ranges } of weightsRanges(spec, options)) {
    try {
      const indexed = await passOver(ranges, spec, options);
      return source.kind === "file" ? { ...indexed, path: fileURLToPath(source.url) } : indexed;
    } catch (error) {
      options.signal.throwIfAborted();
      if (error instanceof NoRanges) {
        const path = await pullWhole({ ...spec, sources: [source.text] }, options, failures);
        if (path !== undefined) return await passOverFile(path, spec, options);
        continue;
      }
      failures.push({ source: ranges.name, reason: reasonOf(error), error });
    }
  }
  throw noSource(spec, failures);
}

/** The path of the whole file from one source; undefined where it fails. */
export async function pullWhole(
  spec: WeightsSpec,
  options: PullOptions,
  failures: Failure[],
): Promise<string | undefined> {
  try {
    return await pullWeights(spec, options);
  } catch (error) {
    options.signal.throwIfAborted();
    // Of the one source.
    const { cause = error } = error as Error;
    failures.push({ source: spec.sources.join(), reason: reasonOf(cause), error: cause });
    return undefined;
  }
}

async function passOver(
  source: SizedSource,
  { sizeBytes, sha256 }: WeightsSpec,
  { signal, onProgress, ...options }: PullOptions,
): Promise<IndexedFile> {
  const limits = { ...DEFAULT_PULL_LIMITS, ...options.limits };
  const bytes = await source.size(signal);
  if (sizeBytes !== undefined && bytes !== sizeBytes) {
    throw new PermanentFault(`the file has ${bytes} bytes instead of ${sizeBytes}`);
  }
  if (bytes > limits.maxBytes) {
    throw new PermanentFault(`the file is larger than ${limits.maxBytes} bytes`);
  }
  const pass = new IndexPass(bytes);
  try {
    for await (const chunk of steadyRange(source, { offset: 0, bytes }, { limits, signal })) {
      pass.push(chunk);
      onProgress?.(pass.position, bytes, source.name);
    }
    const indexed = pass.end();
    if (sha256 === undefined || indexed.sha256 === sha256) return indexed;
    throw new PermanentFault(`the file has the sha256 ${indexed.sha256} instead of ${sha256}`);
  } catch (cause) {
    if (!(cause instanceof GgufFault)) throw cause;
    throw new PermanentFault(`it is not a usable GGUF file: ${cause.message}`, { cause });
  }
}

async function passOverFile(
  path: string,
  spec: WeightsSpec,
  options: PullOptions,
): Promise<IndexedWeights> {
  const file: SizedSource = {
    ...fileRanges(path, "the cache"),
    size: async () => (await stat(path)).size,
  };
  return { ...(await passOver(file, spec, options)), path };
}
