import { createHash } from "node:crypto";
import { mkdir, open, rename, stat, statfs } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { orAborted } from "@heddle/base/async/or-aborted";
import { AppError } from "@heddle/base/errors";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { parseWeightsSource, type WeightsSource } from "@heddle/contracts/weights-source";
import { CLEANUP_MS } from "./deadline.ts";
import { fetchSource, type PullContext, type StoreReaders } from "./fetch-source.ts";
import { withFileLock } from "./file-lock.ts";
import { DEFAULT_PULL_LIMITS, type PullLimits } from "./guarded-request.ts";
import { HostPolicy } from "./host-policy.ts";
import { discardPart } from "./http-download.ts";
import { openRegular } from "./regular-file.ts";
import { runTool as runRealTool, type ToolRunner } from "./run-tool.ts";
import { PermanentFault, reasonOf, SourceFault } from "./source-fault.ts";
import { isVerified, markVerified, sha256Of } from "./verified-file.ts";

/** How weights are pulled. */
export interface PullOptions {
  readonly cacheDirectory: string;
  readonly signal: AbortSignal;
  /** `totalBytes` is 0 while it is not known. May be called often. */
  onProgress?(pulledBytes: number, totalBytes: number, source: string): void;
  /** Hosts besides the Hugging Face hub's; one listed by its full name may be in a private network. */
  readonly allowedHosts?: readonly string[];
  /** Takes weights without a sha256 from remote sources too. The operator's decision. */
  readonly allowUnverified?: boolean;
  /** HF_ENDPOINT and HF_TOKEN are read from it, and npm and pip run in it. */
  readonly env?: NodeJS.ProcessEnv;
  readonly runTool?: ToolRunner;
  readonly readers?: StoreReaders | undefined;
  readonly limits?: Partial<PullLimits>;
}

const SPARE_BYTES = 64 * 1024 * 1024;
const MAX_SOURCES = 32;
/** Digits of a cache folder's name. */
const IDENTITY_DIGITS = 32;
/**
 * Local files that are opened or hashed at once. A file server that does not answer keeps a thread
 * of Node's pool, which has four, so two of them are always free.
 */
const MAX_LOCAL_FILES = 2;
const LOCAL_FILE_WAIT_MS = 60_000;
const LOCAL_FILE_POLL_MS = 20;
let localFiles = 0;

/** A folder of the cache, and the sources whose files may be kept there. */
interface Place {
  readonly directory: string;
  readonly sources: readonly WeightsSource[];
}

/** Why a source did not give a file. */
export interface SourceFailure {
  readonly source: string;
  readonly reason: string;
  readonly error: unknown;
}

/**
 * The path of a local file with the weights: from the cache where it is verified, else from the
 * first source that gives it.
 *
 * - A folder of the cache holds one content: that of a digest, or of one source without a digest.
 * - A file:// source is used where it lies.
 * - Of several processes that pull the same weights one downloads.
 * - An abort rejects with `cancelled`, and leaves a part that a later pull resumes.
 * - Rejects with `unavailable` and the failure of every source, or when the pull took too long.
 * - Rejects with `model_failed` where no source would help if it were asked again.
 */
export async function pullWeights(spec: WeightsSpec, options: PullOptions): Promise<string> {
  const sources = checkedSources(spec);
  return await untilLate(spec, options, (signal) => pullAny(sources, spec, { ...options, signal }));
}

/** Work on a cache of weights, whose failures are those of a pull. */
export async function untilLate<T>(
  spec: WeightsSpec,
  options: PullOptions,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { maxPullMs } = { ...DEFAULT_PULL_LIMITS, ...options.limits };
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), maxPullMs);
  const signal = AbortSignal.any([options.signal, late.signal]);
  try {
    return await orAborted(work(signal), signal, CLEANUP_MS);
  } catch (error) {
    if (options.signal.aborted) {
      throw new AppError("cancelled", `the pull of ${spec.key} was cancelled`, { cause: error });
    }
    if (late.signal.aborted) {
      const message = `the pull of ${spec.key} was not finished within ${maxPullMs} ms`;
      throw new AppError("unavailable", message, { cause: error });
    }
    if (error instanceof AppError) throw error;
    throw new AppError(
      "unavailable",
      `cannot use the worker's weights cache for ${spec.key}: ${reasonOf(error)}. Make it writable, or set another one (--models-cache).`,
      { cause: error },
    );
  } finally {
    clearTimeout(timer);
  }
}

/** The path of the whole file where the cache has it, verified. */
export async function cachedWeights(
  spec: WeightsSpec,
  options: PullOptions,
): Promise<string | undefined> {
  const ofKey = join(options.cacheDirectory, spec.key);
  const places = placesOf(ofKey, checkedSources(spec), spec.sha256);
  const paths = places.map(({ directory }) => join(directory, spec.file));
  if (spec.sha256 !== undefined) paths.unshift(join(ofKey, spec.file));
  for (const path of paths) {
    if (await isVerified(path, markerOf(path), spec, options.signal)) return path;
  }
  return undefined;
}

async function pullAny(
  sources: readonly WeightsSource[],
  spec: WeightsSpec,
  options: PullOptions,
): Promise<string> {
  const ofKey = join(options.cacheDirectory, spec.key);
  const placed = join(ofKey, spec.file);
  // Put there by hand, or by a release that kept one file per key.
  const isPlaced =
    spec.sha256 !== undefined && (await isVerified(placed, markerOf(placed), spec, options.signal));
  if (isPlaced) return placed;
  const failures: SourceFailure[] = [];
  for (const place of placesOf(ofKey, sources, spec.sha256)) {
    const path = await pullInto(place, spec, options, failures);
    if (path !== undefined) return path;
  }
  throw noSource(spec, failures);
}

/** One folder for a digest, whatever the source; without one, what another source gives may differ. */
function placesOf(
  ofKey: string,
  sources: readonly WeightsSource[],
  sha256: string | undefined,
): Place[] {
  if (sha256 !== undefined) {
    return [{ directory: join(ofKey, sha256.slice(0, IDENTITY_DIGITS)), sources }];
  }
  return sources.map((source) => {
    const identity = createHash("sha256").update(source.text).digest("hex");
    return { directory: join(ofKey, identity.slice(0, IDENTITY_DIGITS)), sources: [source] };
  });
}

/** The file's path, or undefined where no source of the place gives it. */
async function pullInto(
  place: Place,
  spec: WeightsSpec,
  options: PullOptions,
  failures: SourceFailure[],
): Promise<string | undefined> {
  const { directory, sources } = place;
  const { signal } = options;
  const path = join(directory, spec.file);
  const isInPlace = spec.sha256 === undefined && sources.every(({ kind }) => kind === "file");
  if (isInPlace) return await pullFirst(place, spec, options, failures);
  await mkdir(directory, { recursive: true });
  if (await isVerified(path, markerOf(path), spec, signal)) return path;
  return await withFileLock(
    `${path}.lock`,
    signal,
    () => reportWaiting(path, spec, options),
    async () => {
      // The process that held the lock before may have pulled them.
      if (await isVerified(path, markerOf(path), spec, signal)) return path;
      return await pullFirst(place, spec, options, failures);
    },
  );
}

async function pullFirst(
  { directory, sources }: Place,
  spec: WeightsSpec,
  options: PullOptions,
  failures: SourceFailure[],
): Promise<string | undefined> {
  for (const source of sources) {
    try {
      return await pullFrom(source, pullContext(source, spec, directory, options), options);
    } catch (error) {
      options.signal.throwIfAborted();
      failures.push({ source: publicName(source), reason: reasonOf(error), error });
    }
  }
  return undefined;
}

/** The failure of all sources. */
export function noSource(
  { key, file, sha256 }: WeightsSpec,
  failures: readonly SourceFailure[],
): AppError {
  const list = failures.map(({ source, reason }) => `\n  - ${source}: ${reason}`).join("");
  const isHopeless = failures.every(({ error }) => error instanceof PermanentFault);
  const byHand =
    sha256 === undefined
      ? ""
      : ` or put the file into the worker's weights cache as ${key}/${file} (sha256 ${sha256}),`;
  return new AppError(
    isHopeless ? "model_failed" : "unavailable",
    `could not get the weights ${key} (${file}) from any of their ${failures.length} sources:${list}\n` +
      `Make one of them reachable,${byHand} or name a local GGUF file as the model's source (file:///path/to/model.gguf).`,
    { cause: failures.at(-1)?.error },
  );
}

/** The source as API clients may read it: of a file on this machine its name and not where it lies. */
export function publicName(source: WeightsSource): string {
  return source.kind === "file" ? `the local file ${basename(source.url.pathname)}` : source.text;
}

async function pullFrom(
  source: WeightsSource,
  context: PullContext,
  options: PullOptions,
): Promise<string> {
  const { spec, partPath, signal } = context;
  const path = join(context.directory, spec.file);
  if (source.kind === "file") return await useInPlace(source, context);
  requireDigest(source, spec, options);
  const resumed = await exists(partPath);
  await fetchSource(source, context);
  let sha256 = await sha256Of(partPath, signal);
  if (resumed && spec.sha256 !== undefined && sha256 !== spec.sha256) {
    // The part of an earlier pull may have been of another version: once more, from nothing.
    await discardPart(partPath);
    await fetchSource(source, context);
    sha256 = await sha256Of(partPath, signal);
  }
  if (spec.sha256 !== undefined && sha256 !== spec.sha256) {
    await discardPart(partPath);
    throw new PermanentFault(`the file has the sha256 ${sha256} instead of ${spec.sha256}`);
  }
  await syncFile(partPath);
  await rename(partPath, path);
  await discardPart(partPath);
  await markVerified(path, markerOf(path), sha256);
  const { size } = await stat(path);
  context.onProgress(size, size);
  return path;
}

/** What comes from elsewhere is taken only where its digest is known, or the operator allows it. */
export function requireDigest(
  { kind }: WeightsSource,
  spec: WeightsSpec,
  options: PullOptions,
): void {
  const isOwn = kind === "builtin" || kind === "file";
  if (spec.sha256 !== undefined || isOwn || options.allowUnverified) return;
  throw new PermanentFault(
    "its sha256 is not known; add it to the model's entry, or allow unverified weights",
  );
}

/** A file:// source is not copied: it may be large, and it is the operator's to keep. */
async function useInPlace(
  source: Extract<WeightsSource, { kind: "file" }>,
  context: PullContext,
): Promise<string> {
  const endMs = performance.now() + LOCAL_FILE_WAIT_MS;
  while (localFiles >= MAX_LOCAL_FILES) {
    if (performance.now() > endMs) throw new SourceFault("other local files take long to read");
    await sleep(LOCAL_FILE_POLL_MS, undefined, { signal: context.signal });
  }
  localFiles += 1;
  // Counted until it has ended, which may be never: an abort does not free its thread.
  const checked = checkInPlace(source, context).finally(() => {
    localFiles -= 1;
  });
  return await orAborted(checked, context.signal, CLEANUP_MS);
}

async function checkInPlace(
  source: Extract<WeightsSource, { kind: "file" }>,
  context: PullContext,
): Promise<string> {
  const { spec, signal } = context;
  let path: string;
  let size: number;
  try {
    path = fileURLToPath(source.url);
    const file = await openRegular(path);
    size = (await file.stat()).size;
    await file.close();
  } catch (cause) {
    throw new PermanentFault(`it cannot be read: ${reasonOf(cause)}`, { cause });
  }
  const marker = markerOf(join(context.directory, spec.file));
  if (spec.sha256 !== undefined && !(await isVerified(path, marker, spec, signal))) {
    throw new PermanentFault(`it does not have the sha256 ${spec.sha256}`);
  }
  context.onProgress(size, size);
  return path;
}

/** What fetches of one source share, with the folder for its file. */
export function pullContext(
  source: WeightsSource,
  spec: WeightsSpec,
  directory: string,
  options: PullOptions,
): PullContext {
  const env = options.env ?? process.env;
  const endpoint = env["HF_ENDPOINT"];
  const endpointHost = endpoint && URL.canParse(endpoint) ? [new URL(endpoint).hostname] : [];
  return {
    spec,
    directory,
    partPath: join(directory, `${spec.file}.part`),
    signal: options.signal,
    hosts: new HostPolicy([...(options.allowedHosts ?? []), ...endpointHost]),
    limits: { ...DEFAULT_PULL_LIMITS, ...options.limits },
    env,
    runTool: options.runTool ?? runRealTool,
    readers: options.readers ?? {},
    onProgress: (pulled, total) => options.onProgress?.(pulled, total, source.text),
    ensureSpace: (needed) => ensureSpace(directory, needed),
  };
}

/** Throws `unavailable` where the disk has less room, with some to spare. */
export async function ensureSpace(directory: string, neededBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const free = bavail * bsize;
  if (neededBytes + SPARE_BYTES <= free) return;
  throw new AppError(
    "unavailable",
    `${neededBytes} bytes are needed and the disk of the weights cache has ${free} free, of which ${SPARE_BYTES} stay free; free some, or set another cache folder`,
  );
}

/** Throws `invalid_value` where no file can have these names or this digest. */
export function checkedSources(spec: WeightsSpec): WeightsSource[] {
  const refuse = (param: string, message: string): never => {
    throw new AppError("invalid_value", message, { param: `weights.${param}` });
  };
  if (!/^[a-z0-9][a-z0-9._-]{0,127}$/.test(spec.key)) {
    refuse(
      "key",
      `${spec.key} is not a valid key: use lower case letters, digits, '.', '_' and '-'`,
    );
  }
  if (!/^[\w][\w.-]{0,199}\.gguf$/.test(spec.file)) {
    refuse("file", `${spec.file} is not a file name that ends in .gguf`);
  }
  if (spec.sha256 !== undefined && !/^[0-9a-f]{64}$/.test(spec.sha256)) {
    refuse("sha256", "sha256 is 64 lower-case hexadecimal digits");
  }
  if (spec.sources.length === 0 || spec.sources.length > MAX_SOURCES) {
    refuse("sources", `there must be 1 to ${MAX_SOURCES} sources`);
  }
  return spec.sources.map(parseWeightsSource);
}

/** While another process pulls, its part's growth is the progress. */
async function reportWaiting(path: string, spec: WeightsSpec, options: PullOptions): Promise<void> {
  let pulled = 0;
  try {
    pulled = (await stat(`${path}.part`)).size;
  } catch {
    // The other process has not begun to write, or has just finished.
  }
  options.onProgress?.(pulled, spec.sizeBytes ?? 0, "another process");
}

async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r+");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}

function markerOf(path: string): string {
  return `${path}.verified.json`;
}
