import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, mkdir, open, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AppError } from "@heddle/base/errors";
import { replaceFile, SHARED_MODE } from "@heddle/base/replace-file";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { parseWeightsSource } from "@heddle/contracts/weights-source";
import { withFileLock } from "../../weights/file-lock.ts";
import { DEFAULT_PULL_LIMITS } from "../../weights/guarded-request.ts";
import {
  cachedWeights,
  checkedSources,
  ensureSpace,
  noSource,
  type PullOptions,
  type SourceFailure,
  untilLate,
} from "../../weights/pull-weights.ts";
import {
  fetchPieces,
  givesWhole,
  piecesThere,
  type WantedPiece,
} from "../../weights/ranges/fetch-pieces.ts";
import { fileRanges } from "../../weights/ranges/file-ranges.ts";
import { indexWeights, pullWhole } from "../../weights/ranges/index-weights.ts";
import { AbsentRange, type RangeSource } from "../../weights/ranges/range-source.ts";
import {
  decodeIndex,
  encodeIndex,
  indexDigest,
  type TensorIndex,
} from "../../weights/ranges/tensor-index.ts";
import { weightsRanges } from "../../weights/ranges/weights-ranges.ts";
import { PermanentFault, reasonOf } from "../../weights/source-fault.ts";
import { writeAt } from "../../weights/write-at.ts";
import type { CuttableModel } from "../cut-rules.ts";
import type { BlockRange } from "../shard-cut.ts";
import { HeldWeights } from "./held-weights.ts";
import { type ShardPlace, StageFolder } from "./stage-folder.ts";

/** Another machine that may have the weights, or some of them. */
export interface WeightsPeer {
  /** The form that API clients may read. */
  readonly name: string;
  /** The text of an index. */
  index(digest: string, signal: AbortSignal): Promise<string>;
  /** A range of the model's file. Throws a SourceFault; AbsentRange where it lacks these. */
  read(
    digest: string,
    range: { readonly offset: number; readonly bytes: number },
    signal: AbortSignal,
  ): AsyncIterable<Uint8Array>;
}

export interface StageWeightsOptions extends PullOptions {
  readonly peers?: readonly WeightsPeer[] | undefined;
  /** Called once for each source of a fetch that fails. */
  onFault?(source: string, reason: string): void;
}

/** A model of which the header is here, and the digest that names its index. */
export interface IndexedModel {
  readonly index: string;
  readonly model: CuttableModel;
}

/** The folder of all models' shards within the cache of weights. */
export function stagesDirectory(cacheDirectory: string): string {
  return join(cacheDirectory, "stages");
}

/**
 * The index and the header of a model. The first time the whole file is read, from the cache or
 * through the network, and verified by the digest of the weights. A read that was broken off is
 * continued by a later call, also of another process. Rejects as pullWeights does, and with
 * `unprocessable` where the model cannot be cut.
 */
export async function indexedModel(
  spec: WeightsSpec,
  options: StageWeightsOptions,
): Promise<IndexedModel> {
  return await untilLate(spec, options, (signal) => findIndex(spec, { ...options, signal }));
}

async function findIndex(spec: WeightsSpec, options: StageWeightsOptions): Promise<IndexedModel> {
  checkedSources(spec);
  const directory = stagesDirectory(options.cacheDirectory);
  await mkdir(directory, { recursive: true });
  const mark = join(directory, `${spec.key}.index`);
  const known = () => knownIndex(spec, mark, directory);
  const found = await known();
  if (found) return found;
  const work = async () => {
    const other = await known();
    if (other) return other;
    // Before the read, so that a file that changes meanwhile is read again.
    const identity = await identityOf(spec);
    const progress = join(directory, `${spec.key}.pass`);
    const { index, header, path } = await indexWeights(spec, options, progress);
    const digest = indexDigest(encodeIndex(index));
    const folder = new StageFolder(directory, digest);
    await folder.keepIndex(index);
    await folder.keepHeader(header);
    if (path !== undefined) await folder.keepWhole(path);
    await replaceFile(mark, JSON.stringify({ identity, digest }), SHARED_MODE);
    return await withModel(folder, index);
  };
  return await withFileLock(`${mark}.lock`, options.signal, async () => undefined, work);
}

async function withModel(folder: StageFolder, index: TensorIndex): Promise<IndexedModel> {
  const model = await folder.model(index);
  if (model) return { index: folder.digest, model };
  throw new AppError("unavailable", "the cache of weights changed while a model was read");
}

/** What was found of these weights before, while they are the same. */
async function knownIndex(
  spec: WeightsSpec,
  mark: string,
  directory: string,
): Promise<IndexedModel | undefined> {
  const text = await readFile(mark, "utf8").catch(() => "{}");
  const { identity, digest } = JSON.parse(text) as Partial<Record<string, string>>;
  if (digest === undefined || identity !== (await identityOf(spec))) return undefined;
  const folder = new StageFolder(directory, digest);
  const found = await folder.index();
  const model = found && (await folder.model(found.index));
  return model && { index: digest, model };
}

/** The digest of weights; else their sources, with what shows that a file has changed. */
async function identityOf({ sha256, sources }: WeightsSpec): Promise<string> {
  if (sha256 !== undefined) return sha256;
  const parts = sources.map(async (text) => {
    const source = parseWeightsSource(text);
    if (source.kind !== "file") return [text];
    const file = await stat(fileURLToPath(source.url)).catch(() => undefined);
    return [text, file?.size, file?.mtimeMs, file?.ino];
  });
  const found = JSON.stringify(await Promise.all(parts));
  return createHash("sha256").update(found).digest("hex");
}

/**
 * The path of the shard with these blocks, of the model that the index names. It is fetched where it
 * is not here yet: from this machine, its file:// sources, its peers and the other sources, in this
 * order. Each piece has its digest before the file appears. What was fetched stays on failure and on
 * abort, and a later call continues from it. Rejects as pullWeights does. With `index` empty the index
 * is found first.
 */
export async function stageWeights(
  spec: WeightsSpec,
  { from, to, index }: BlockRange & { readonly index: string },
  options: StageWeightsOptions,
): Promise<string> {
  const work = async (signal: AbortSignal) => {
    const digest = index || (await findIndex(spec, { ...options, signal })).index;
    const directory = stagesDirectory(options.cacheDirectory);
    const folder = new StageFolder(directory, digest);
    return await new StageFetch(spec, folder, { ...options, signal }).shard({ from, to });
  };
  return await untilLate(spec, options, work);
}

/** The fetch of one shard. */
class StageFetch {
  readonly #spec: WeightsSpec;
  readonly #folder: StageFolder;
  readonly #options: StageWeightsOptions;
  readonly #failures = new Map<RangeSource, SourceFailure>();

  constructor(spec: WeightsSpec, folder: StageFolder, options: StageWeightsOptions) {
    this.#spec = spec;
    this.#folder = folder;
    this.#options = options;
  }

  async shard(range: BlockRange): Promise<string> {
    await mkdir(this.#folder.directory, { recursive: true });
    const index = (await this.#folder.index())?.index ?? (await this.#foundIndex());
    const sources = await this.#sources();
    const model = (await this.#folder.model(index)) ?? (await this.#header(index, sources));
    const place = this.#folder.shard(model, range);
    const { path } = place;
    const { signal } = this.#options;
    if (await this.#folder.has(place, signal)) return path;
    const waiting = async () => this.#options.onProgress?.(0, 0, "another process");
    return await withFileLock(`${path}.lock`, signal, waiting, async () => {
      if (!(await this.#folder.has(place, signal))) await this.#fetch(place, index, sources);
      return path;
    });
  }

  /** From a peer, else from the whole file. */
  async #foundIndex(): Promise<TensorIndex> {
    const { digest } = this.#folder;
    const { peers = [], signal } = this.#options;
    for (const peer of peers) {
      try {
        const text = await peer.index(digest, signal);
        if (indexDigest(text) !== digest) throw new PermanentFault("it gave another index");
        const index = decodeIndex(text);
        await this.#folder.keepIndex(index);
        return index;
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof AbsentRange)) this.#options.onFault?.(peer.name, reasonOf(error));
      }
    }
    const own = await findIndex(this.#spec, this.#options);
    const found = own.index === digest ? await this.#folder.index() : undefined;
    if (found) return found.index;
    const message = `the sources of ${this.#spec.key} give this worker another file than the one that was divided: register the model again, or give all workers the same file`;
    throw new AppError("model_failed", message);
  }

  async #sources(): Promise<RangeSource[]> {
    const { peers = [], cacheDirectory } = this.#options;
    const { digest } = this.#folder;
    const held = new HeldWeights(stagesDirectory(cacheDirectory));
    const cached = await cachedWeights(this.#spec, this.#options);
    const given = weightsRanges(this.#spec, this.#options);
    const ranges = (isLocal: boolean) =>
      given.flatMap((each) => ((each.source.kind === "file") === isLocal ? [each.ranges] : []));
    return [
      { name: "this worker's cache", read: (...range) => heldRange(held, digest, ...range) },
      ...(cached === undefined ? [] : [fileRanges(cached, "this worker's cache")]),
      ...ranges(true),
      ...peers.map(({ name, ...peer }): RangeSource => {
        return {
          name,
          read: (offset, bytes, signal) => peer.read(digest, { offset, bytes }, signal),
        };
      }),
      ...ranges(false),
    ];
  }

  async #header(index: TensorIndex, sources: readonly RangeSource[]): Promise<CuttableModel> {
    const [header] = index.pieces;
    if (!header) throw new AppError("invalid_value", "the index of the weights has no header");
    const part = `${this.#folder.headerPath}.${process.pid}.part`;
    const file = await open(part, "w+");
    try {
      const piece = { ...header, source: 0, target: 0 };
      await this.#pieces(file, [piece], sources);
      const bytes = new Uint8Array(header.bytes);
      await file.read(bytes, 0, bytes.length, 0);
      await this.#folder.keepHeader(bytes);
    } finally {
      await file.close();
      await rm(part, { force: true });
    }
    return (await withModel(this.#folder, index)).model;
  }

  async #fetch(
    place: ShardPlace,
    { pieces: all, sizeBytes }: TensorIndex,
    sources: readonly RangeSource[],
  ): Promise<void> {
    const { path, cut } = place;
    const byOffset = new Map(all.map((piece) => [piece.offset, piece]));
    const pieces = cut.ranges.flatMap(({ source, target, bytes }): WantedPiece[] => {
      const sha256 = byOffset.get(source)?.sha256 ?? "";
      return bytes === 0 ? [] : [{ source, target, bytes, sha256 }];
    });
    const part = `${path}.part`;
    const file = await open(part, constants.O_RDWR | constants.O_CREAT);
    try {
      const first = await piecesThere(file, pieces, this.#options.signal);
      await file.truncate(cut.sizeBytes);
      await writeAt(file, cut.header, 0);
      const neededBytes = pieces.slice(first).reduce((sum, { bytes }) => sum + bytes, 0);
      await ensureSpace(this.#folder.directory, neededBytes);
      await this.#pieces(file, pieces, sources, first);
      await file.sync();
    } finally {
      await file.close();
    }
    await this.#folder.keepShard(part, place);
    await this.#folder.removeOldest(sizeBytes);
  }

  /** A source of whole files is pulled where nothing else gives the pieces. */
  async #pieces(
    file: FileHandle,
    pieces: readonly WantedPiece[],
    sources: readonly RangeSource[],
    first = 0,
  ): Promise<void> {
    const { signal, onProgress, onFault } = this.#options;
    const limits = { ...DEFAULT_PULL_LIMITS, ...this.#options.limits };
    // Of the header, which alone is no tensor, there is none.
    const progress = pieces.length > 1 && onProgress && { onProgress };
    const how = { pieces, failures: this.#failures, limits, signal, ...progress };
    const left = await fetchPieces(file, { ...how, sources, ...(onFault && { onFault }) }, first);
    if (!left) return;
    const failures: SourceFailure[] = left.failures.filter((each) => !givesWhole(each));
    const whole = left.failures.filter(givesWhole).map(({ source }) => source);
    for (const { source, ranges } of weightsRanges(this.#spec, this.#options)) {
      if (!whole.includes(ranges.name)) continue;
      const spec = { ...this.#spec, sources: [source.text] };
      const path = await pullWhole(spec, this.#options, failures);
      if (path === undefined) continue;
      const there = await piecesThere(file, pieces, signal);
      const own = await fetchPieces(
        file,
        { ...how, sources: [fileRanges(path, ranges.name)] },
        there,
      );
      if (!own) return;
      failures.push(...own.failures);
    }
    throw noSource(this.#spec, failures);
  }
}

async function* heldRange(
  held: HeldWeights,
  digest: string,
  ...[offset, bytes]: Parameters<RangeSource["read"]>
): AsyncGenerator<Uint8Array, void> {
  try {
    yield* held.read(digest, offset, bytes);
  } catch (error) {
    throw new AbsentRange(reasonOf(error), { cause: error });
  }
}
