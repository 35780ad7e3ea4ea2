import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { readGguf } from "../gguf/gguf-reader.ts";
import { type CutRule, cuttableModel } from "./cut-rules.ts";
import { type BlockRange, cutShard } from "./shard-cut.ts";
import { writeShard } from "./shard-file.ts";

/** Cut shards that are kept of a model. */
const MAX_SHARDS = 4;
const DIGEST_DIGITS = 16;

/** A shard's file on this machine. */
export interface StageFile {
  readonly path: string;
  readonly rule: CutRule;
  /** The same for all shards of one content. */
  readonly model: string;
}

/**
 * The shard of a model's file with these blocks, as a file in the folder; it is cut where it is not
 * there yet. Of each content the four shards that were used last are kept: a file that is removed
 * lives on in the processes that have it open. Throws an AppError where the model cannot be cut so.
 */
export async function stageFile(
  source: string,
  { from, to }: BlockRange,
  directory: string,
): Promise<StageFile> {
  const file = await readGguf(source);
  const model = cuttableModel(file);
  const cut = cutShard(model, { from, to });
  const digest = createHash("sha256").update(JSON.stringify([file.sizeBytes, ...file.tensors]));
  const content = digest.digest("hex").slice(0, DIGEST_DIGITS);
  const { mtimeMs, size } = await stat(source);
  const own = createHash("sha256").update(`${source} ${mtimeMs} ${size}`).update(cut.header);
  const folder = join(directory, content);
  const path = join(folder, `${from}-${to}-${own.digest("hex").slice(0, DIGEST_DIGITS)}.gguf`);
  await mkdir(folder, { recursive: true });
  const now = new Date();
  const isThere = await utimes(path, now, now).then(
    () => true,
    () => false,
  );
  if (!isThere) {
    await writeShard(path, cut, (start, bytes) =>
      createReadStream(source, { start, end: start + bytes - 1 }),
    );
    await removeOldest(folder);
  }
  return { path, rule: model.rule, model: content };
}

async function removeOldest(folder: string): Promise<void> {
  const names = (await readdir(folder)).filter((name) => name.endsWith(".gguf"));
  const files = await Promise.all(
    names.map(async (name) => {
      const path = join(folder, name);
      const usedMs = await stat(path).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      );
      return { path, usedMs };
    }),
  );
  const newestFirst = files.sort((a, b) => b.usedMs - a.usedMs);
  for (const { path } of newestFirst.slice(MAX_SHARDS)) await rm(path, { force: true });
}
