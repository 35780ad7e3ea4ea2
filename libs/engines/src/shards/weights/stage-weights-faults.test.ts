// holds: shard-ranges

import { spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, statSync, writeSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { rejectionOf } from "@heddle/base/testing/rejection";
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { cutShard } from "../shard-cut.ts";
import { HUB, MIDDLE, OTHER_HUB, peerOf, QUICK, WeightsBench } from "../testing/weights-bench.ts";
import { indexedModel, stageWeights, type WeightsPeer } from "./stage-weights.ts";

let bench: WeightsBench;
beforeAll(async () => {
  bench = await WeightsBench.start();
});
afterAll(() => bench.close());
beforeEach(() => bench.reset());

test("stage weights: broken connections are resumed at the byte", async () => {
  const peers = [await bench.peerWith()];
  const most = 100_000;
  bench.handler = (request, response) => bench.serve(request, response, { most });
  const path = await bench.stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(bench.asked.length).toBeGreaterThan(3);
  // Bytes that the reader had not taken when its connection broke are sent again.
  expect(bench.sent).toBeLessThan(2 * cutShard(bench.model, MIDDLE).sourceBytes);
});

test("stage weights: a later fetch continues from the pieces that are there", async () => {
  const peers = [await bench.peerWith()];
  const stop = new AbortController();
  const aborted = bench.stage(MIDDLE, [HUB], {
    peers,
    signal: stop.signal,
    onProgress: (done, total) => done > total / 2 && stop.abort(),
  });
  expect((await rejectionOf(aborted)).code).toBe("cancelled");
  expect(await bench.shards()).toEqual([]);
  bench.sent = 0;
  const path = await bench.stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(bench.sent).toBeLessThan(cutShard(bench.model, MIDDLE).sourceBytes / 2 + 4_096);
});

/** Reads a file for its index while the connection breaks when this much of it is kept; then again. */
async function readTwice(keptBytes: number, body: Buffer): Promise<string> {
  const limits = { ...QUICK, idleTimeoutMs: 20_000, keepAfterBytes: 50_000, maxAttempts: 1 };
  const read = () => indexedModel(bench.specOf([HUB]), bench.optionsOf({ limits }));
  const kept = join(bench.stages, "m.pass");
  const until = () =>
    existsSync(kept) && JSON.parse(readFileSync(kept, "utf8")).state.at > keptBytes;
  bench.handler = (request, response) => {
    // The first asks for the size.
    if (bench.asked.length < 2)
      bench.serve(request, response, { body, most: body.length - 9, until });
    else response.destroy();
  };
  expect((await rejectionOf(read())).code).toBe("unavailable");
  bench.handler = (request, response) => bench.serve(request, response);
  bench.asked = [];
  const found = await read();
  expect(existsSync(kept)).toBe(false);
  // The size, the header, and the rest.
  expect(Number(/^bytes=(\d+)-/.exec(bench.asked[2] ?? "")?.[1])).toBeGreaterThan(keptBytes);
  return found.index;
}

test("index: a read that was broken off is continued after a restart", async () => {
  expect(await readTwice(100_000, bench.content)).toBe(bench.index);
  expect(bench.asked).toHaveLength(3);
});

test("index: what was read of another file before is read again", async () => {
  expect(await readTwice(bench.content.length - 300_000, bench.damaged())).toBe(bench.index);
  expect(bench.asked.slice(3)).toEqual([`bytes=0-${bench.content.length - 1}`]);
});

test("stage weights: wrong bytes are refused, and the next source continues", async () => {
  const peers = [await bench.peerWith()];
  const body = bench.damaged();
  bench.handler = (request, response) =>
    bench.serve(request, response, request.url?.includes("other") ? {} : { body });
  const faults: string[] = [];
  const onFault = (source: string, reason: string) => faults.push(`${source}: ${reason}`);
  const path = await bench.stage(MIDDLE, [HUB, OTHER_HUB], { peers, onFault });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(faults).toEqual([
    expect.stringMatching(/^hf:\/\/owner\/repo.*: the \d+ bytes at \d+ have the sha256 .* instead/),
  ]);
});

test("stage weights: without another source wrong bytes are an error", async () => {
  const peers = [await bench.peerWith()];
  const body = bench.damaged();
  bench.handler = (request, response) => bench.serve(request, response, { body });
  const { code, message } = await rejectionOf(bench.stage(MIDDLE, [HUB], { peers }));
  expect(code).toBe("model_failed");
  expect(message).toMatch(/hf:\/\/owner\/repo.*: the \d+ bytes at \d+ have the sha256/);
  expect(await bench.shards()).toEqual([]);
});

test("stage weights: a kept shard that has changed on disk is mended from a source", async () => {
  const peers = [await bench.peerWith()];
  const path = await bench.stage(MIDDLE, [HUB], { peers });
  const file = openSync(path, "r+");
  writeSync(file, Buffer.alloc(64, 0x5a), 0, 64, Math.floor(statSync(path).size / 2));
  closeSync(file);
  bench.sent = 0;
  expect(await bench.stage(MIDDLE, [HUB], { peers })).toBe(path);
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  // The other pieces are still here.
  expect(bench.sent).toBeLessThan(cutShard(bench.model, MIDDLE).sourceBytes);
});

test("stage weights: a peer that lies is found out, about bytes and the index", async () => {
  const honest = await bench.peerWith(MIDDLE);
  const faults: string[] = [];
  const onFault = (source: string) => faults.push(source);
  const liar: WeightsPeer = {
    name: "the liar",
    index: async (...args) => (await honest.index(...args)).replace(/[\da-f]{64}/, bench.sha256),
    async *read(...args) {
      for await (const chunk of honest.read(...args)) yield chunk.map((byte) => byte ^ 1);
    },
  };
  const path = await bench.stage(MIDDLE, [HUB], { peers: [liar, honest], onFault });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(faults).toEqual(["the liar", "the liar"]);
  expect(bench.sent).toBe(0);
});

test("stage weights: what a peer's disk changed is found out", async () => {
  const other = await mkdtemp(join(bench.folder, "peer-"));
  const theirs = await bench.stage(MIDDLE, [HUB], { cacheDirectory: other });
  const bytes = readFileSync(theirs);
  bytes[bytes.length >> 1]! ^= 1;
  await writeFile(theirs, bytes);
  const faults: string[] = [];
  const onFault = (source: string) => faults.push(source);
  const path = await bench.stage(MIDDLE, [HUB], { peers: [peerOf(other)], onFault });
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
  expect(faults).toEqual(["the peer"]);
});

test("stage weights: another file than the one that was divided is refused", async () => {
  const spec = bench.specOf([HUB]);
  const other = stageWeights(spec, { ...MIDDLE, index: "0".repeat(64) }, bench.optionsOf());
  const { code, message } = await rejectionOf(other);
  expect(code).toBe("model_failed");
  expect(message).toMatch(/another file than the one that was divided/);
});

test("stage weights: a disk that gets full in the middle is a typed error", async (context) => {
  const disk = join(bench.folder, "disk");
  await mkdir(disk);
  const isMounted =
    spawnSync("mount", ["-t", "tmpfs", "-o", "size=80m", "tmpfs", disk]).status === 0;
  if (!isMounted) {
    console.log("a full disk is not tested: mounting a tmpfs takes root");
    context.skip();
  }
  onTestFinished(() => void spawnSync("umount", ["--lazy", disk]));
  const peers = [await bench.peerWith()];
  const filler = join(disk, "filler");
  const fill = () => {
    const file = openSync(filler, "w");
    try {
      for (const size of [1 << 20, 4_096, 1]) writeUntilFull(file, Buffer.alloc(size, 1));
    } finally {
      closeSync(file);
    }
  };
  let fills = 0;
  const options = { peers, cacheDirectory: disk };
  const failed = bench.stage(MIDDLE, [HUB], {
    ...options,
    onProgress: () => {
      if (fills++ === 1) fill();
    },
  });
  const { code, message } = await rejectionOf(failed);
  expect(code).toBe("unavailable");
  expect(message).toMatch(/the disk of the weights cache is full \(ENOSPC\)/);
  // There is no room for it any more.
  expect((await rejectionOf(bench.stage(MIDDLE, [HUB], options))).message).toMatch(
    /bytes are needed/,
  );
  // No lock is left behind, for which the next one would wait.
  fill();
  const indexed = () => indexedModel(bench.specOf([HUB]), bench.optionsOf(options));
  expect((await rejectionOf(indexed())).message).toMatch(/ENOSPC/);
  await rm(filler);
  const begunMs = performance.now();
  expect((await indexed()).index).toBe(bench.index);
  expect(performance.now() - begunMs).toBeLessThan(20_000);
  const path = await bench.stage(MIDDLE, [HUB], options);
  expect(readFileSync(path).equals(await bench.expected(MIDDLE))).toBe(true);
});

function writeUntilFull(file: number, bytes: Buffer): void {
  try {
    for (;;) writeSync(file, bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}
