import { stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { GgufFault } from "../../gguf/byte-source.ts";
import { DEFAULT_PULL_LIMITS, type PullLimits } from "../guarded-request.ts";
import {
  cachedWeights,
  noSource,
  type PullOptions,
  pullWeights,
  type SourceFailure,
} from "../pull-weights.ts";
import { PermanentFault, reasonOf } from "../source-fault.ts";
import { fileRanges } from "./file-ranges.ts";
import { KeptPass } from "./kept-pass.ts";
import { NoRanges, type RangeReading, steadyRange } from "./range-source.ts";
import { storedHashers } from "./stored-hashers.ts";
import { type IndexedFile, IndexPass, type PassState } from "./tensor-index.ts";
import { type SizedSource, weightsRanges } from "./weights-ranges.ts";

export interface IndexedWeights extends IndexedFile {
  /** Where the whole file lies on this machine, if it does. */
  readonly path?: string;
}

/**
 * The index of a file of weights, from one read of it. The file is the cache's, if there is one,
 * else that of the first source with the right digest. Of a source's file only the index is kept,
 * unless the source gives whole files only. The file `progress` keeps the state of a read with a
 * known digest. Rejects as pullWeights does.
 */
export async function indexWeights(
  spec: WeightsSpec,
  options: PullOptions,
  progress: string,
): Promise<IndexedWeights> {
  const cached = await cachedWeights(spec, options);
  if (cached !== undefined) return await passOverFile(cached, spec, options);
  const failures: SourceFailure[] = [];
  for (const { source, ranges } of weightsRanges(spec, options)) {
    try {
      const kept = source.kind === "file" ? undefined : keptPass(spec, options, progress);
      const indexed = await passOver(ranges, spec, options, kept);
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
  failures: SourceFailure[],
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
  kept?: KeptPass,
): Promise<IndexedFile> {
  const limits = limitsOf(options);
  const bytes = await source.size(signal);
  if (sizeBytes !== undefined && bytes !== sizeBytes) {
    throw new PermanentFault(`the file has ${bytes} bytes instead of ${sizeBytes}`);
  }
  if (bytes > limits.maxBytes) {
    throw new PermanentFault(`the file is larger than ${limits.maxBytes} bytes`);
  }
  const begun = await kept?.load();
  const over = async (state: PassState | undefined): Promise<IndexedFile> => {
    const pass = await beginPass(source, bytes, { limits, signal }, { state, isKept: !!kept });
    const rest = { offset: pass.position, bytes: bytes - pass.position };
    for await (const chunk of steadyRange(source, rest, { limits, signal })) {
      pass.push(chunk);
      await kept?.keep(pass);
      onProgress?.(pass.position, bytes, source.name);
    }
    const indexed = pass.end();
    await kept?.remove();
    return indexed;
  };
  try {
    let indexed = await over(begun);
    // What was read before may be of another file: once more, from nothing.
    if (begun && indexed.sha256 !== sha256) indexed = await over(undefined);
    if (sha256 === undefined || indexed.sha256 === sha256) return indexed;
    throw new PermanentFault(`the file has the sha256 ${indexed.sha256} instead of ${sha256}`);
  } catch (cause) {
    if (!(cause instanceof GgufFault)) throw cause;
    throw new PermanentFault(`it is not a usable GGUF file: ${cause.message}`, { cause });
  }
}

/** Only of a file whose digest is known, which shows at the end that all was of one file. */
function keptPass(
  { sha256 }: WeightsSpec,
  options: PullOptions,
  path: string,
): KeptPass | undefined {
  return sha256 === undefined
    ? undefined
    : new KeptPass(path, sha256, limitsOf(options).keepAfterBytes);
}

function limitsOf({ limits }: Pick<PullOptions, "limits">): PullLimits {
  return { ...DEFAULT_PULL_LIMITS, ...limits };
}

/** A pass at its beginning, or where an earlier one was; its header is read again. */
async function beginPass(
  source: SizedSource,
  fileBytes: number,
  reading: RangeReading,
  { state, isKept }: { state: PassState | undefined; isKept: boolean },
): Promise<IndexPass> {
  const hashers = isKept ? await storedHashers() : undefined;
  if (!state) return new IndexPass(fileBytes, hashers);
  const pieces: Uint8Array[] = [];
  const header = { offset: 0, bytes: state.headerBytes };
  for await (const chunk of steadyRange(source, header, reading)) pieces.push(chunk);
  const pass = new IndexPass(fileBytes, hashers);
  try {
    if (pass.resume(state, Buffer.concat(pieces))) return pass;
  } catch {
    // Another release has kept it.
  }
  return new IndexPass(fileBytes, hashers);
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
