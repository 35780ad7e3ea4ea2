import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { replaceFile, SHARED_MODE } from "@heddle/base/replace-file";
import { parseGguf } from "../../gguf/gguf-reader.ts";
import {
  decodeIndex,
  encodeIndex,
  indexDigest,
  type TensorIndex,
} from "../../weights/ranges/tensor-index.ts";
import { isVerified, markVerified } from "../../weights/verified-file.ts";
import { type CuttableModel, cuttableModel } from "../cut-rules.ts";
import { type BlockRange, cutShard, type ShardCut } from "../shard-cut.ts";

/**
 * Cut shards that are kept of a model, with unfinished ones. A worker has one stage of a model at a time;
 * those of earlier plans serve a plan that comes again, and other workers.
 */
const MAX_SHARDS = 16;
/** They take no more of the disk than this many whole models. */
const MAX_KEPT_MODELS = 2;
/** In which the blocks of a file are counted: its holes take nothing. */
const DISK_BLOCK_BYTES = 512;
const HEADER_DIGITS = 8;
const SHARD = /^(\d{1,6})-(\d{1,6})-[\da-f]{8}\.gguf$/;

/** A shard, as a file of the folder. */
export interface ShardPlace {
  readonly path: string;
  readonly cut: ShardCut;
}

/**
 * What a machine has of one model that is divided: the index, the header and cut shards, in a folder
 * that the index's digest names.
 */
export class StageFolder {
  readonly digest: string;
  readonly directory: string;

  /** `directory` is that of all models. */
  constructor(directory: string, digest: string) {
    if (!/^[\da-f]{64}$/.test(digest)) {
      throw new AppError("invalid_value", "an index of weights is named by 64 hexadecimal digits");
    }
    this.digest = digest;
    this.directory = join(directory, digest);
  }

  get headerPath(): string {
    return join(this.directory, "header.gguf");
  }

  /** Undefined where it is not there, or damaged. */
  async index(): Promise<{ readonly text: string; readonly index: TensorIndex } | undefined> {
    const text = await readFile(join(this.directory, "index.json"), "utf8").catch(() => "");
    if (indexDigest(text) !== this.digest) return undefined;
    return { text, index: decodeIndex(text) };
  }

  /** The index must have the folder's digest. */
  async keepIndex(index: TensorIndex): Promise<void> {
    await mkdir(this.directory, { recursive: true });
    await replaceFile(join(this.directory, "index.json"), encodeIndex(index), SHARED_MODE);
  }

  /** Undefined where its header is not there, or damaged. */
  async model({ pieces, sizeBytes }: TensorIndex): Promise<CuttableModel | undefined> {
    const header = await readFile(this.headerPath).catch(() => Buffer.alloc(0));
    const sha256 = createHash("sha256").update(header).digest("hex");
    return sha256 === pieces[0]?.sha256 ? cuttableModel(parseGguf(header, sizeBytes)) : undefined;
  }

  async keepHeader(header: Uint8Array): Promise<void> {
    await replaceFile(this.headerPath, header, SHARED_MODE);
  }

  /** Where the shard with these blocks is, or is to be. */
  shard(model: CuttableModel, { from, to }: BlockRange): ShardPlace {
    const cut = cutShard(model, { from, to });
    const header = createHash("sha256").update(cut.header).digest("hex").slice(0, HEADER_DIGITS);
    return { cut, path: join(this.directory, `${from}-${to}-${header}.gguf`) };
  }

  /** Whether the shard is there, unchanged since it was kept; it is used now. */
  async has({ path, cut }: ShardPlace, signal: AbortSignal): Promise<boolean> {
    const marker = markerOf(path);
    if (!(await isVerified(path, marker, { sizeBytes: cut.sizeBytes }, signal))) return false;
    const now = new Date();
    await utimes(marker, now, now);
    return true;
  }

  /** Keeps a file whose pieces all have their digests as the shard. */
  async keepShard(file: string, { path }: ShardPlace): Promise<void> {
    await rename(file, path);
    await markVerified(path, markerOf(path), this.digest);
  }

  /** The finished shards. */
  async shards(model: CuttableModel): Promise<ShardPlace[]> {
    const names = await readdir(this.directory).catch(() => []);
    return names.flatMap((name) => {
      const [, from, to] = SHARD.exec(name) ?? [];
      if (to === undefined || Number(to) > model.blocks) return [];
      const place = this.shard(model, { from: Number(from), to: Number(to) });
      // Else one that another release has cut.
      return place.path === join(this.directory, name) ? [place] : [];
    });
  }

  /** A file that is removed lives on in the processes that have it open. */
  async removeOldest(modelBytes: number): Promise<void> {
    const names = await readdir(this.directory);
    const paths = names.filter((name) => /^\d.*\.gguf(\.part|\.\d+\.adapter)?$/.test(name));
    const files = await Promise.all(
      paths.map(async (name) => {
        const path = join(this.directory, name);
        const found = await stat(path).catch(() => ({ mtimeMs: 0, blocks: 0 }));
        const marker = await stat(markerOf(path)).catch(() => ({ mtimeMs: 0 }));
        const usedMs = Math.max(found.mtimeMs, marker.mtimeMs);
        return { path, usedMs, bytes: found.blocks * DISK_BLOCK_BYTES };
      }),
    );
    const newestFirst = files.sort((a, b) => b.usedMs - a.usedMs);
    let bytes = 0;
    for (const [i, file] of newestFirst.entries()) {
      bytes += file.bytes;
      const isKept = i === 0 || (i < MAX_SHARDS && bytes <= MAX_KEPT_MODELS * modelBytes);
      if (isKept) continue;
      for (const path of [file.path, markerOf(file.path)]) await rm(path, { force: true });
    }
  }

  /** Remembers a file with the whole model, while it is unchanged. */
  async keepWhole(path: string): Promise<void> {
    const { size, mtimeMs } = await stat(path);
    await replaceFile(this.#wholePath, JSON.stringify({ path, size, mtimeMs }), SHARED_MODE);
  }

  /** The path of a file with the whole model. */
  async whole(): Promise<string | undefined> {
    try {
      const known = JSON.parse(await readFile(this.#wholePath, "utf8")) as Record<string, unknown>;
      const { size, mtimeMs } = await stat(String(known["path"]));
      const isSame = size === known["size"] && mtimeMs === known["mtimeMs"];
      return isSame ? String(known["path"]) : undefined;
    } catch {
      // None is known, or it is gone.
      return undefined;
    }
  }

  get #wholePath(): string {
    return join(this.directory, "whole.json");
  }
}

/** The file that shows a shard unchanged, modified when the shard was used last. */
function markerOf(path: string): string {
  return `${path}.verified.json`;
}

/** The digest of the index of the model that a shard's path is of. */
export function indexOfShard(path: string): string {
  return /([\da-f]{64})[\\/][^\\/]+$/.exec(path)?.[1] ?? "";
}
