// holds: shard-ranges

import { existsSync, readFileSync, statSync } from "node:fs";
import { seededRandom } from "@heddle/base/random";
import { rejectionOf } from "@heddle/base/testing/rejection";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { encodeIndex, IndexPass, indexDigest } from "../../weights/ranges/tensor-index.ts";
import { weightsHeader } from "../../weights/ranges/weights-header.ts";
import { cutShard } from "../shard-cut.ts";
import { BLOCKS } from "../testing/random-architectures.ts";
import { HUB, MIDDLE, WeightsBench } from "../testing/weights-bench.ts";
import { HeldWeights } from "./held-weights.ts";
import { indexedModel, stageWeights } from "./stage-weights.ts";

let bench: WeightsBench;
beforeAll(async () => {
  bench = await WeightsBench.start();
});
afterAll(() => bench.close());
beforeEach(() => bench.reset());

test("index: the same for any pieces in which the file comes", () => {
  const seed = Number(process.env["HEDDLE_PROPERTY_SEED"] ?? 7);
  const random = seededRandom(seed);
  for (let i = 0; i < 20; i++) {
    const pass = new IndexPass(bench.content.length);
    for (let at = 0; at < bench.content.length; ) {
      const next = at + 1 + Math.floor(random() ** 4 * bench.content.length);
      pass.push(bench.content.subarray(at, next));
      at = next;
    }
    const found = pass.end();
    expect(found.sha256).toBe(bench.sha256);
    expect(indexDigest(encodeIndex(found.index))).toBe(bench.index);
  }
});

test("stage weights: the ranges of the blocks alone are fetched, and read once", async () => {
  const peers = [await bench.peerWith()];
  const seen: number[] = [];
  const path = await bench.stage(MIDDLE, [HUB], { peers, onProgress: (done) => seen.push(done) });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  const { sourceBytes } = cutShard(bench.model, MIDDLE);
  expect(bench.sent).toBeGreaterThanOrEqual(sourceBytes);
  expect(bench.sent).toBeLessThan(sourceBytes + 4_096);
  expect(seen.at(-1)).toBe(sourceBytes);
  expect(await bench.stage(MIDDLE, [HUB], { peers })).toBe(path);
  expect(bench.sent).toBeLessThan(sourceBytes + 4_096);
});

test("stage weights: without an index one pass over the whole file finds it", async () => {
  const path = await stageWeights(bench.specOf([HUB]), { ...MIDDLE, index: "" }, bench.optionsOf());
  expect(path).toContain(bench.index);
  expect(bench.sent).toBeLessThan(
    bench.content.length + cutShard(bench.model, MIDDLE).sourceBytes + 4_096,
  );
  const again = await indexedModel(bench.specOf([HUB]), bench.optionsOf());
  expect(again.index).toBe(bench.index);
  const other = bench.specOf([HUB], { sha256: "0".repeat(64) });
  const { code, message } = await rejectionOf(indexedModel(other, bench.optionsOf()));
  expect(code).toBe("model_failed");
  expect(message).toMatch(/has the sha256 [\da-f]{64} instead of 0{64}/);
});

test("stage weights: from a peer what it has, the rest from a source", async () => {
  const peers = [await bench.peerWith({ from: 0, to: 6 })];
  const path = await bench.stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  const rest = cutShard(bench.model, { from: 6, to: 9 }).sourceBytes;
  expect(bench.sent).toBeLessThan(rest + 4_096);
  expect(bench.sent).toBeGreaterThan(rest / 2);
});

test("stage weights: another cut of the same model needs no source", async () => {
  const peers = [await bench.peerWith()];
  await bench.stage({ from: 0, to: 6 }, [HUB], { peers });
  await bench.stage({ from: 6, to: BLOCKS }, [HUB], { peers });
  bench.sent = 0;
  const path = await bench.stage(MIDDLE);
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(bench.sent).toBe(0);
});

test("stage weights: a source of whole files is pulled whole", async () => {
  bench.handler = (request, response) => {
    bench.asked.push(request.headers.range ?? "all");
    response.writeHead(200, { "content-length": bench.content.length }).end(bench.content);
  };
  const path = await bench.stage(MIDDLE);
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(bench.asked.filter((range) => range === "all")).toHaveLength(1);
});

test("stage weights: a file on this machine is read where it lies", async () => {
  const file = `file://${bench.path}`;
  const spec: WeightsSpec = { key: "m", file: "m.gguf", sources: [file] };
  const { index: found } = await indexedModel(spec, bench.optionsOf());
  expect(found).toBe(bench.index);
  const path = await stageWeights(spec, { ...MIDDLE, index: bench.index }, bench.optionsOf());
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  // Which other workers may read too, all of it.
  const pieces: Uint8Array[] = [];
  const held = new HeldWeights(bench.stages);
  for await (const chunk of held.read(bench.index, 0, bench.content.length)) pieces.push(chunk);
  expect(Buffer.concat(pieces).equals(bench.content)).toBe(true);
});

test("stage weights: a registry's layer gives ranges", async () => {
  const digest = `sha256:${bench.sha256}`;
  const source = `oci://${new URL(bench.endpoint).host}/models/m:1`;
  const options = { peers: [await bench.peerWith()], allowedHosts: ["127.0.0.1"] };
  bench.handler = (request, response) => {
    if (request.url?.includes("/blobs/")) return bench.serve(request, response);
    return void response.end(JSON.stringify({ layers: [{ digest, size: bench.content.length }] }));
  };
  const path = await bench.stage(MIDDLE, [source], options);
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(bench.sent).toBeLessThan(cutShard(bench.model, MIDDLE).sourceBytes + 4_096);
});

test("stage weights: hosts that are not allowed are not asked for ranges", async () => {
  const peers = [await bench.peerWith()];
  const { message } = await rejectionOf(
    bench.stage(MIDDLE, ["https://elsewhere.test/m.gguf"], { peers }),
  );
  expect(message).toMatch(/elsewhere.test is not on the allow-list/);
});

test("stage weights: shards of earlier plans take as much of the disk as two models", async () => {
  const paths: string[] = [];
  for (let at = 1; at < BLOCKS; at++) {
    paths.push(await bench.stage({ from: 0, to: at }), await bench.stage({ from: at, to: BLOCKS }));
  }
  const kept = paths.filter((path) => existsSync(path));
  const bytes = kept.reduce((sum, path) => sum + statSync(path).blocks * 512, 0);
  expect(bytes).toBeLessThanOrEqual(2 * bench.content.length);
  expect(bytes).toBeGreaterThan(bench.content.length);
  // The latest ones.
  expect(kept).toEqual(paths.slice(-kept.length));
});

test("weights: a header is read alone, from the first source that gives it", async () => {
  const header = await weightsHeader(bench.specOf([HUB]), bench.optionsOf());
  expect(header.tensors).toEqual(bench.model.file.tensors);
  // The first shows how large the file is.
  expect(bench.asked).toEqual(["bytes=0-0", `bytes=0-${2 ** 20 - 1}`]);
  const files = ["file:///absent.gguf", `file://${bench.path}`];
  const local = await weightsHeader(bench.specOf(files), bench.optionsOf());
  expect(local).toEqual(header);
  const whole = weightsHeader(
    bench.specOf(["builtin://tiny?seed=3"], { sha256: undefined }),
    bench.optionsOf(),
  );
  await expect(whole).rejects.toMatchObject({ message: /whole files only/ });
});
