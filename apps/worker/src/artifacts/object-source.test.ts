// holds: pipelines-s3

import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { AppError } from "@heddle/base/errors";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { indexedModel, stageWeights } from "@heddle/engines/shards/weights/stage-weights";
import type { ObjectBytes } from "@heddle/engines/weights/fetch-source";
import { pullWeights } from "@heddle/engines/weights/pull-weights";
import { PART_BYTES, S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { pullAccess } from "./object-source.ts";

let store: S3Server;
const objects: ReadonlyMap<string, Buffer> = new Map([
  ["small", Buffer.from("one")],
  ["sub/one part", randomBytes(PART_BYTES)],
  ["sub/two+parts", randomBytes(PART_BYTES + 1)],
]);
beforeAll(async () => {
  store = await startS3Server();
  const client = new S3Client(readS3Settings("s3://heddle", store.env, "a test"));
  const all = [...objects].map(([key, bytes]) => [`open/${key}`, bytes] as const);
  for (const [key, bytes] of [...all, ["opened/x", Buffer.from("secret")] as const]) {
    await client.put(key, bytes.length, async (at, count) => bytes.subarray(at, at + count));
  }
});
afterAll(() => store.close());

/** The content of a source, as a worker has it that may read `s3://heddle/open`. */
async function pulled(source: string, bytes: Buffer, entries = ["s3://heddle/open"]) {
  const cacheDirectory = mkdtempSync(join(tmpdir(), "heddle-objects-"));
  onTestFinished(() => rmSync(cacheDirectory, { recursive: true }));
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const spec = { key: "a", file: "a.gguf", sources: [source], sha256 };
  const { allowedHosts, readObject: object } = pullAccess(entries, store.env);
  const { signal } = new AbortController();
  return readFileSync(
    await pullWeights(spec, { allowedHosts, readers: { object }, cacheDirectory, signal }),
  );
}

test.each([...objects])("s3 source: %s is read whole", async (key, bytes) => {
  expect((await pulled(`s3://heddle/open/${key}`, bytes)).equals(bytes)).toBe(true);
});

test("s3 source: another prefix, no object and another digest are refused", async () => {
  const secret = Buffer.from("secret");
  const refused = /the bucket heddle is not on the allow-list with that key/;
  await expect(pulled("s3://heddle/opened/x", secret)).rejects.toThrow(refused);
  await expect(pulled("s3://heddle/open/../opened/x", secret)).rejects.toThrow(/not a source/);
  await expect(pulled("s3://heddle/opened/x", secret, ["*.hf.co"])).rejects.toThrow(
    /no bucket is on the allow-list/,
  );
  await expect(pulled("s3://heddle/open/none", secret)).rejects.toThrow(/there is no object/);
  await expect(pulled("s3://heddle/open/small", secret)).rejects.toThrow(/has the sha256/);
});

// holds: shard-ranges
test("s3 source: a stage's worker reads its blocks alone, over a break", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-s3-stages-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "six.gguf");
  await writeTinyModel(path, { blocks: 6 });
  const content = readFileSync(path);
  const client = new S3Client(readS3Settings("s3://heddle", store.env, "a test"));
  const part = async (at: number, count: number) => content.subarray(at, at + count);
  await client.put("open/six.gguf", content.length, part);
  const { readObject } = pullAccess(["s3://heddle/open"], store.env);
  let read = 0;
  let breaks = 1;
  const object: ObjectBytes = async function* (...range) {
    for await (const bytes of readObject!(...range)) {
      const given = breaks > 0 ? bytes.subarray(0, bytes.length / 2) : bytes;
      read += given.length;
      yield given;
      if (breaks-- > 0) throw new AppError("unavailable", "the connection broke");
    }
  };
  const sha256 = createHash("sha256").update(content).digest("hex");
  const spec = { key: "a", file: "six.gguf", sha256, sizeBytes: content.length };
  const remote = { ...spec, sources: ["s3://heddle/open/six.gguf"] };
  const options = (name: string) => ({
    cacheDirectory: join(folder, name),
    readers: { object },
    limits: { retryBaseMs: 1, retryMaxMs: 5 },
    signal: AbortSignal.timeout(50_000),
  });
  const { index } = await indexedModel(remote, options("remote"));
  expect(read).toBe(content.length);
  [read, breaks] = [0, 1];
  const blocks = { from: 2, to: 4, index };
  const shard = readFileSync(await stageWeights(remote, blocks, options("remote")));
  const local = { ...spec, sources: [pathToFileURL(path).href] };
  const expected = readFileSync(await stageWeights(local, blocks, options("local")));
  expect(shard.equals(expected)).toBe(true);
  expect(breaks).toBeLessThan(1);
  expect(read).toBeLessThan(content.length / 2);
});

test("s3 source: a bucket without a key for it is named at the start", () => {
  expect(() => pullAccess(["s3://heddle"], {})).toThrow(
    /--weights-hosts s3:\/\/heddle needs a key/,
  );
});
