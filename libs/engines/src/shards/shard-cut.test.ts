import { createReadStream, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readGguf } from "../gguf/gguf-reader.ts";
import { type CuttableModel, cuttableModel } from "./cut-rules.ts";
import { type BlockRange, cutShard } from "./shard-cut.ts";
import { BLOCKS, writeRandomModel } from "./testing/random-architectures.ts";
import { writeShard } from "./testing/write-shard.ts";

const folder = mkdtempSync(join(tmpdir(), "heddle-cut-"));
const path = join(folder, "model.gguf");
let model: CuttableModel;

beforeAll(async () => {
  await writeRandomModel(path, "llama");
  model = cuttableModel(await readGguf(path));
});
afterAll(() => rmSync(folder, { recursive: true }));

const read = (start: number, bytes: number) =>
  createReadStream(path, { start, end: start + bytes - 1 });

async function written(range: BlockRange, name: string) {
  const target = join(folder, name);
  await writeShard(target, cutShard(model, range), read);
  return { target, file: await readGguf(target), bytes: readFileSync(target) };
}

test("shard: its tensors have the model's bytes under names that count from 0", async () => {
  const original = readFileSync(path);
  const { file, bytes } = await written({ from: 4, to: 9 }, "middle.gguf");
  const own = file.tensors.filter(({ name }) => /^blk\.[0-4]\./.test(name));
  expect(own).toHaveLength(5 * 9);
  for (const { name, offset, sizeBytes = 0 } of own) {
    const [, block, rest] = /^blk\.(\d)\.(.*)$/.exec(name) ?? [];
    const source = model.file.tensors.find(
      (each) => each.name === `blk.${Number(block) + 4}.${rest}`,
    );
    const from = source?.offset ?? 0;
    expect(bytes.subarray(offset, offset + sizeBytes)).toEqual(
      original.subarray(from, from + sizeBytes),
    );
  }
  // The block behind its own, whose input is the shard's result, reads as zeros.
  const last = file.tensors.filter(({ name }) => name.startsWith("blk.5."));
  expect(last).toHaveLength(9);
  for (const { offset, sizeBytes = 0 } of last) {
    expect(bytes.subarray(offset, offset + sizeBytes).every((byte) => byte === 0)).toBe(true);
  }
  expect(file.metadata.get("llama.block_count")?.value).toBe(6);
  expect(file.metadata.get("tokenizer.ggml.model")?.value).toBe("no_vocab");
});

test("shards: together they hold each of the model's tensors once", () => {
  const ranges = [0, 3, 7].map((from, i) => ({ from, to: [3, 7, BLOCKS][i]! }));
  const places = ranges.flatMap((range) =>
    cutShard(model, range).ranges.map(({ source }) => source),
  );
  expect(places.toSorted((a, b) => a - b)).toEqual(model.file.tensors.map(({ offset }) => offset));
});

test("shard: holes take no room on the disk", async () => {
  const { target } = await written({ from: 4, to: 5 }, "one.gguf");
  const { size, blocks } = statSync(target);
  const cut = cutShard(model, { from: 4, to: 5 });
  expect(size).toBe(cut.sizeBytes);
  expect(blocks * 512).toBeLessThan(cut.sourceBytes + cut.header.length + 16 * 4_096);
});

test.each([
  ["fewer", -1],
  ["more", 1],
])("shard: a source that gives %s bytes leaves no file", async (_, change) => {
  const target = join(folder, "broken.gguf");
  const broken = (start: number, bytes: number) => {
    return Readable.from([readFileSync(path).subarray(start, start + bytes + change)]);
  };
  const writing = writeShard(target, cutShard(model, { from: 0, to: 4 }), broken);
  await expect(writing).rejects.toMatchObject({
    code: "unavailable",
    message: /^the model's file gave/,
  });
  expect(() => statSync(target)).toThrow("ENOENT");
});
