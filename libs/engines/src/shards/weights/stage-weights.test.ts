// holds: shard-ranges

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  closeSync,
  createReadStream,
  existsSync,
  openSync,
  readFileSync,
  statSync,
  writeSync,
} from "node:fs";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import { seededRandom } from "@heddle/base/random";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { readGguf } from "../../gguf/gguf-reader.ts";
import { AbsentRange } from "../../weights/ranges/range-source.ts";
import { encodeIndex, IndexPass, indexDigest } from "../../weights/ranges/tensor-index.ts";
import { weightsHeader } from "../../weights/ranges/weights-header.ts";
import { reasonOf } from "../../weights/source-fault.ts";
import { type CuttableModel, cuttableModel } from "../cut-rules.ts";
import { type BlockRange, cutShard } from "../shard-cut.ts";
import { BLOCKS, writeRandomModel } from "../testing/random-architectures.ts";
import { writeShard } from "../testing/write-shard.ts";
import { HeldWeights } from "./held-weights.ts";
import {
  indexedModel,
  type StageWeightsOptions,
  stagesDirectory,
  stageWeights,
  type WeightsPeer,
} from "./stage-weights.ts";

const MIDDLE = { from: 4, to: 9 };
const quick = { retryBaseMs: 1, retryMaxMs: 5, connectTimeoutMs: 5_000, idleTimeoutMs: 5_000 };

let folder: string;
let content: Buffer;
let model: CuttableModel;
let sha256: string;
let index: string;
let cache: string;
let server: Server;
let endpoint: string;
/** Bytes that the server has sent, and the ranges that it was asked for. */
let sent: number;
let asked: string[];
let handler: (request: IncomingMessage, response: ServerResponse) => void;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-ranges-"));
  const path = join(folder, "model.gguf");
  await writeRandomModel(path, "llama");
  content = readFileSync(path);
  model = cuttableModel(await readGguf(path));
  sha256 = createHash("sha256").update(content).digest("hex");
  const pass = new IndexPass(content.length);
  pass.push(content);
  index = indexDigest(encodeIndex(pass.end().index));
  server = createServer((request, response) => handler(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  cache = await mkdtemp(join(folder, "cache-"));
  sent = 0;
  asked = [];
  handler = (request, response) => serve(request, response);
});
afterEach(() => server.closeAllConnections());

interface Serving {
  readonly body?: Buffer;
  /** The connection breaks after this many bytes, when this holds. */
  readonly most?: number;
  readonly until?: () => boolean;
}

function serve(
  { headers }: IncomingMessage,
  response: ServerResponse,
  { body = content, most = Number.POSITIVE_INFINITY, until = () => true }: Serving = {},
): void {
  const [, start = "0", end = `${body.length - 1}`] =
    /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? "") ?? [];
  asked.push(headers.range ?? "all");
  const part = body.subarray(Number(start), Number(end) + 1);
  response.writeHead(206, {
    "content-length": part.length,
    "content-range": `bytes ${start}-${end}/${body.length}`,
  });
  const given = part.subarray(0, most);
  sent += given.length;
  const breakOff = (): void => {
    if (until()) response.destroy();
    else setTimeout(breakOff, 50);
  };
  response.write(given, () => {
    if (given.length < part.length) setTimeout(breakOff, 50);
    else response.end();
  });
}

const HUB = "hf://owner/repo/model.gguf@abc123";
const OTHER = "hf://owner/other/model.gguf@abc123";

function specOf(sources: readonly string[], more: Partial<WeightsSpec> = {}): WeightsSpec {
  return { key: "m", file: "m.gguf", sources, sha256, sizeBytes: content.length, ...more };
}

const optionsOf = (more: Partial<StageWeightsOptions> = {}): StageWeightsOptions => ({
  cacheDirectory: cache,
  signal: AbortSignal.timeout(50_000),
  env: { HF_ENDPOINT: endpoint },
  limits: quick,
  ...more,
});

const stage = (
  range: BlockRange,
  sources: readonly string[] = [HUB],
  more: Partial<StageWeightsOptions> = {},
) => stageWeights(specOf(sources), { ...range, index }, optionsOf(more));

/** The shard as it is cut from a file that is here. */
async function expected(range: BlockRange): Promise<Buffer> {
  const path = join(folder, `${range.from}-${range.to}.gguf`);
  const read = (start: number, bytes: number) =>
    createReadStream(join(folder, "model.gguf"), { start, end: start + bytes - 1 });
  await writeShard(path, cutShard(model, range), read);
  return readFileSync(path);
}

/** What another worker's cache has, as that worker would give it. */
function peerOf(directory: string): WeightsPeer {
  const held = new HeldWeights(stagesDirectory(directory));
  return {
    name: "the peer",
    index: async (digest) =>
      held.index(digest).catch((error: unknown) => {
        throw new AbsentRange(reasonOf(error));
      }),
    async *read(digest, { offset, bytes }) {
      try {
        yield* held.read(digest, offset, bytes);
      } catch (error) {
        throw new AbsentRange(reasonOf(error));
      }
    },
  };
}

/** A peer that has the index and the header, or the shard with the blocks too. */
async function peerWith(range?: BlockRange): Promise<WeightsPeer> {
  const other = await mkdtemp(join(folder, "peer-"));
  await indexedModel(specOf([HUB]), optionsOf({ cacheDirectory: other }));
  if (range) {
    await stageWeights(specOf([HUB]), { ...range, index }, optionsOf({ cacheDirectory: other }));
  }
  sent = 0;
  asked = [];
  return peerOf(other);
}

async function failureOf(promise: Promise<unknown>): Promise<AppError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppError) return error;
  throw error ?? new Error("nothing was thrown");
}

const shards = async () =>
  (await readdir(join(stagesDirectory(cache), index))).filter((name) => /^\d.*gguf$/.test(name));

test("index: the same for any pieces in which the file comes", () => {
  const seed = Number(process.env["HEDDLE_PROPERTY_SEED"] ?? 7);
  const random = seededRandom(seed);
  for (let i = 0; i < 20; i++) {
    const pass = new IndexPass(content.length);
    for (let at = 0; at < content.length; ) {
      const next = at + 1 + Math.floor(random() ** 4 * content.length);
      pass.push(content.subarray(at, next));
      at = next;
    }
    const found = pass.end();
    expect(found.sha256).toBe(sha256);
    expect(indexDigest(encodeIndex(found.index))).toBe(index);
  }
});

test("stage weights: the ranges of the blocks alone are fetched, and read once", async () => {
  const peers = [await peerWith()];
  const seen: number[] = [];
  const path = await stage(MIDDLE, [HUB], { peers, onProgress: (done) => seen.push(done) });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  const { sourceBytes } = cutShard(model, MIDDLE);
  expect(sent).toBeGreaterThanOrEqual(sourceBytes);
  expect(sent).toBeLessThan(sourceBytes + 4_096);
  expect(seen.at(-1)).toBe(sourceBytes);
  expect(await stage(MIDDLE, [HUB], { peers })).toBe(path);
  expect(sent).toBeLessThan(sourceBytes + 4_096);
});

test("stage weights: without an index one pass over the whole file finds it", async () => {
  const path = await stageWeights(specOf([HUB]), { ...MIDDLE, index: "" }, optionsOf());
  expect(path).toContain(index);
  expect(sent).toBeLessThan(content.length + cutShard(model, MIDDLE).sourceBytes + 4_096);
  const again = await indexedModel(specOf([HUB]), optionsOf());
  expect(again.index).toBe(index);
  const other = specOf([HUB], { sha256: "0".repeat(64) });
  const { code, message } = await failureOf(indexedModel(other, optionsOf()));
  expect(code).toBe("model_failed");
  expect(message).toMatch(/has the sha256 [\da-f]{64} instead of 0{64}/);
});

test("stage weights: broken connections are resumed at the byte", async () => {
  const peers = [await peerWith()];
  const most = 100_000;
  handler = (request, response) => serve(request, response, { most });
  const path = await stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(asked.length).toBeGreaterThan(3);
  // Bytes that the reader had not taken when its connection broke are sent again.
  expect(sent).toBeLessThan(2 * cutShard(model, MIDDLE).sourceBytes);
});

test("stage weights: a later fetch continues from the pieces that are there", async () => {
  const peers = [await peerWith()];
  const stop = new AbortController();
  const aborted = stage(MIDDLE, [HUB], {
    peers,
    signal: stop.signal,
    onProgress: (done, total) => done > total / 2 && stop.abort(),
  });
  expect((await failureOf(aborted)).code).toBe("cancelled");
  expect(await shards()).toEqual([]);
  sent = 0;
  const path = await stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(sent).toBeLessThan(cutShard(model, MIDDLE).sourceBytes / 2 + 4_096);
});

/** Reads a file for its index while the connection breaks when this much of it is kept; then again. */
async function readTwice(keptBytes: number, body: Buffer): Promise<string> {
  const limits = { ...quick, idleTimeoutMs: 20_000, keepAfterBytes: 50_000, maxAttempts: 1 };
  const read = () => indexedModel(specOf([HUB]), optionsOf({ limits }));
  const kept = join(stagesDirectory(cache), "m.pass");
  const until = () =>
    existsSync(kept) && JSON.parse(readFileSync(kept, "utf8")).state.at > keptBytes;
  handler = (request, response) => {
    // The first asks for the size.
    if (asked.length < 2) serve(request, response, { body, most: body.length - 9, until });
    else response.destroy();
  };
  expect((await failureOf(read())).code).toBe("unavailable");
  handler = (request, response) => serve(request, response);
  asked = [];
  const found = await read();
  expect(existsSync(kept)).toBe(false);
  // The size, the header, and the rest.
  expect(Number(/^bytes=(\d+)-/.exec(asked[2] ?? "")?.[1])).toBeGreaterThan(keptBytes);
  return found.index;
}

test("index: a read that was broken off is continued after a restart", async () => {
  expect(await readTwice(100_000, content)).toBe(index);
  expect(asked).toHaveLength(3);
});

test("index: what was read of another file before is read again", async () => {
  expect(await readTwice(content.length - 300_000, damaged())).toBe(index);
  expect(asked.slice(3)).toEqual([`bytes=0-${content.length - 1}`]);
});

/** The file with one bit of a tensor of block 6 changed. */
function damaged(): Buffer {
  const { offset } = model.file.tensors.find(({ name }) => name === "blk.6.ffn_up.weight")!;
  const body = Buffer.from(content);
  body[offset + 11]! ^= 1;
  return body;
}

test("stage weights: wrong bytes are refused, and the next source continues", async () => {
  const peers = [await peerWith()];
  const body = damaged();
  handler = (request, response) =>
    serve(request, response, request.url?.includes("other") ? {} : { body });
  const faults: string[] = [];
  const onFault = (source: string, reason: string) => faults.push(`${source}: ${reason}`);
  const path = await stage(MIDDLE, [HUB, OTHER], { peers, onFault });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(faults).toEqual([
    expect.stringMatching(/^hf:\/\/owner\/repo.*: the \d+ bytes at \d+ have the sha256 .* instead/),
  ]);
});

test("stage weights: without another source wrong bytes are an error", async () => {
  const peers = [await peerWith()];
  const body = damaged();
  handler = (request, response) => serve(request, response, { body });
  const { code, message } = await failureOf(stage(MIDDLE, [HUB], { peers }));
  expect(code).toBe("model_failed");
  expect(message).toMatch(/hf:\/\/owner\/repo.*: the \d+ bytes at \d+ have the sha256/);
  expect(await shards()).toEqual([]);
});

test("stage weights: from a peer what it has, the rest from a source", async () => {
  const peers = [await peerWith({ from: 0, to: 6 })];
  const path = await stage(MIDDLE, [HUB], { peers });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  const rest = cutShard(model, { from: 6, to: 9 }).sourceBytes;
  expect(sent).toBeLessThan(rest + 4_096);
  expect(sent).toBeGreaterThan(rest / 2);
});

test("stage weights: another cut of the same model needs no source", async () => {
  const peers = [await peerWith()];
  await stage({ from: 0, to: 6 }, [HUB], { peers });
  await stage({ from: 6, to: BLOCKS }, [HUB], { peers });
  sent = 0;
  const path = await stage(MIDDLE);
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(sent).toBe(0);
});

test("stage weights: a peer that lies is found out, about bytes and the index", async () => {
  const honest = await peerWith(MIDDLE);
  const faults: string[] = [];
  const onFault = (source: string) => faults.push(source);
  const liar: WeightsPeer = {
    name: "the liar",
    index: async (...args) => (await honest.index(...args)).replace(/[\da-f]{64}/, sha256),
    async *read(...args) {
      for await (const chunk of honest.read(...args)) yield chunk.map((byte) => byte ^ 1);
    },
  };
  const path = await stage(MIDDLE, [HUB], { peers: [liar, honest], onFault });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(faults).toEqual(["the liar", "the liar"]);
  expect(sent).toBe(0);
});

test("stage weights: what a peer's disk changed is found out", async () => {
  const other = await mkdtemp(join(folder, "peer-"));
  const range = { ...MIDDLE, index };
  const theirs = await stageWeights(specOf([HUB]), range, optionsOf({ cacheDirectory: other }));
  const bytes = readFileSync(theirs);
  bytes[bytes.length >> 1]! ^= 1;
  await writeFile(theirs, bytes);
  const faults: string[] = [];
  const onFault = (source: string) => faults.push(source);
  const path = await stage(MIDDLE, [HUB], { peers: [peerOf(other)], onFault });
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(faults).toEqual(["the peer"]);
});

test("stage weights: a source of whole files is pulled whole", async () => {
  handler = (request, response) => {
    asked.push(request.headers.range ?? "all");
    response.writeHead(200, { "content-length": content.length }).end(content);
  };
  const path = await stage(MIDDLE);
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(asked.filter((range) => range === "all")).toHaveLength(1);
});

test("stage weights: a file on this machine is read where it lies", async () => {
  const file = `file://${join(folder, "model.gguf")}`;
  const spec: WeightsSpec = { key: "m", file: "m.gguf", sources: [file] };
  const { index: found } = await indexedModel(spec, optionsOf());
  expect(found).toBe(index);
  const path = await stageWeights(spec, { ...MIDDLE, index }, optionsOf());
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  // Which other workers may read too, all of it.
  const pieces: Uint8Array[] = [];
  const held = new HeldWeights(stagesDirectory(cache));
  for await (const chunk of held.read(index, 0, content.length)) pieces.push(chunk);
  expect(Buffer.concat(pieces).equals(content)).toBe(true);
});

test("stage weights: a registry's layer gives ranges", async () => {
  const digest = `sha256:${sha256}`;
  const source = `oci://${new URL(endpoint).host}/models/m:1`;
  const options = { peers: [await peerWith()], allowedHosts: ["127.0.0.1"] };
  handler = (request, response) => {
    if (request.url?.includes("/blobs/")) return serve(request, response);
    return void response.end(JSON.stringify({ layers: [{ digest, size: content.length }] }));
  };
  const path = await stage(MIDDLE, [source], options);
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
  expect(sent).toBeLessThan(cutShard(model, MIDDLE).sourceBytes + 4_096);
});

test("stage weights: hosts that are not allowed are not asked for ranges", async () => {
  const peers = [await peerWith()];
  const { message } = await failureOf(stage(MIDDLE, ["https://elsewhere.test/m.gguf"], { peers }));
  expect(message).toMatch(/elsewhere.test is not on the allow-list/);
});

test("stage weights: another file than the one that was divided is refused", async () => {
  const spec = specOf([HUB]);
  const other = stageWeights(spec, { ...MIDDLE, index: "0".repeat(64) }, optionsOf());
  const { code, message } = await failureOf(other);
  expect(code).toBe("model_failed");
  expect(message).toMatch(/another file than the one that was divided/);
});

test("stage weights: a disk that gets full in the middle is a typed error", async (context) => {
  const disk = join(folder, "disk");
  await mkdir(disk);
  const isMounted =
    spawnSync("mount", ["-t", "tmpfs", "-o", "size=80m", "tmpfs", disk]).status === 0;
  if (!isMounted) {
    console.log("a full disk is not tested: mounting a tmpfs takes root");
    context.skip();
  }
  onTestFinished(() => void spawnSync("umount", ["--lazy", disk]));
  const peers = [await peerWith()];
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
  const failed = stage(MIDDLE, [HUB], {
    ...options,
    onProgress: () => {
      if (fills++ === 1) fill();
    },
  });
  const { code, message } = await failureOf(failed);
  expect(code).toBe("unavailable");
  expect(message).toMatch(/the disk of the weights cache is full \(ENOSPC\)/);
  // There is no room for it any more.
  expect((await failureOf(stage(MIDDLE, [HUB], options))).message).toMatch(/bytes are needed/);
  // No lock is left behind, for which the next one would wait.
  fill();
  const indexed = () => indexedModel(specOf([HUB]), optionsOf(options));
  expect((await failureOf(indexed())).message).toMatch(/ENOSPC/);
  await rm(filler);
  const begunMs = performance.now();
  expect((await indexed()).index).toBe(index);
  expect(performance.now() - begunMs).toBeLessThan(20_000);
  const path = await stage(MIDDLE, [HUB], options);
  expect(readFileSync(path).equals(await expected(MIDDLE))).toBe(true);
});

function writeUntilFull(file: number, bytes: Buffer): void {
  try {
    for (;;) writeSync(file, bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}

test("stage weights: shards of earlier plans take as much of the disk as two models", async () => {
  const paths: string[] = [];
  for (let at = 1; at < BLOCKS; at++) {
    paths.push(await stage({ from: 0, to: at }), await stage({ from: at, to: BLOCKS }));
  }
  const kept = paths.filter((path) => existsSync(path));
  const bytes = kept.reduce((sum, path) => sum + statSync(path).blocks * 512, 0);
  expect(bytes).toBeLessThanOrEqual(2 * content.length);
  expect(bytes).toBeGreaterThan(content.length);
  // The latest ones.
  expect(kept).toEqual(paths.slice(-kept.length));
});

test("weights: a header is read alone, from the first source that gives it", async () => {
  const header = await weightsHeader(specOf([HUB]), optionsOf());
  expect(header.tensors).toEqual(model.file.tensors);
  // The first shows how large the file is.
  expect(asked).toEqual(["bytes=0-0", `bytes=0-${2 ** 20 - 1}`]);
  const path = join(folder, "model.gguf");
  const local = await weightsHeader(specOf(["file:///absent.gguf", `file://${path}`]), optionsOf());
  expect(local).toEqual(header);
  const whole = weightsHeader(
    specOf(["builtin://tiny?seed=3"], { sha256: undefined }),
    optionsOf(),
  );
  await expect(whole).rejects.toMatchObject({ message: /whole files only/ });
});
