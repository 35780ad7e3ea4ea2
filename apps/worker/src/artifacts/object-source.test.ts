// holds: pipelines-s3

import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { pullWeights } from "@heddle/engines/weights/pull-weights";
import { PART_BYTES, S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { pullAccess } from "./object-source.ts";

vi.setConfig({ testTimeout: 60_000 });

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
}, 60_000);
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

test("s3 source: a bucket without a key for it is named at the start", () => {
  expect(() => pullAccess(["s3://heddle"], {})).toThrow(
    /--weights-hosts s3:\/\/heddle needs a key/,
  );
});
