// holds: artifacts-s3

import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { filesBeneath } from "@heddle/base/beneath";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { openReplica } from "./open-replica.ts";
import type { ArtifactReplica } from "./replica.ts";

const HOUR_MS = 3_600_000;
let server: S3Server;
let folder: string;
let tests = 0;
let replica: ArtifactReplica;
let prefix: string;

beforeAll(async () => {
  server = await startS3Server();
});
afterAll(() => server.close());
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-copies-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  prefix = `test-${tests++}`;
  replica = openReplica(`s3://heddle/a/${prefix}`, HOUR_MS, server.env);
});

/** Copies a folder with the files, by name. */
async function copied(name: string, files: Readonly<Record<string, Buffer>>, isReplaced = false) {
  const from = join(folder, "from");
  rmSync(from, { recursive: true, force: true });
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(from, path, ".."), { recursive: true });
    writeFileSync(join(from, path), content);
  }
  const list = await filesBeneath(folder, "from");
  await replica.copy({ root: folder, folder: "from", files: list }, name, isReplaced);
}

async function restored(name: string): Promise<string> {
  const to = mkdtempSync(join(folder, "to-"));
  await replica.restore(name, to);
  return to;
}

const stored = () => globSync("**/*_object", { cwd: join(server.directory, "a", prefix) });

test("s3: a copy that was changed in the store is refused", async () => {
  await copied("job_A/1.0", { x: Buffer.from("0123456789") });
  const [path = ""] = stored().filter((each) => !each.includes("manifest"));
  writeFileSync(join(server.directory, "a", prefix, path), "0123456780");
  await expect(restored("job_A/1.0")).rejects.toThrow("x in the store was changed");
});

test("s3: errors name the store and give advice", async () => {
  const open = (place: string, env: NodeJS.ProcessEnv) =>
    openReplica(place, HOUR_MS, { ...server.env, ...env });
  await expect(open("s3://none", {}).names("x")).rejects.toThrow(
    /\/none.*NoSuchBucket.*Make the bucket first/s,
  );
  await expect(
    open("s3://heddle", { AWS_SECRET_ACCESS_KEY: "x" }).names("x"),
  ).rejects.toMatchObject({
    code: "permission_denied",
    message: expect.stringMatching(/SignatureDoesNotMatch.*Check AWS_ACCESS_KEY_ID/s),
  });
  const anonymous = { AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1" };
  await expect(open("s3://heddle", anonymous).names("x")).rejects.toThrow(
    "the store http://127.0.0.1:1/heddle did not answer",
  );
  expect(() => open("s3://heddle", { AWS_ACCESS_KEY_ID: "" })).toThrow(/set AWS_ACCESS_KEY_ID and/);
  expect(() => open("s3://A_B", {})).toThrow("takes s3://BUCKET/PREFIX, not s3://A_B");
  expect(() => open("s3://heddle", { AWS_ENDPOINT_URL_S3: "host:1" })).toThrow(/takes an address/);
  const missing = { AWS_SHARED_CREDENTIALS_FILE: join(folder, "none") };
  expect(() => open("s3://heddle", missing)).toThrow(
    /AWS_SHARED_CREDENTIALS_FILE .* does not exist/,
  );
});

test("s3: the key may come from a file, and a busy store is retried", async () => {
  const file = join(folder, "credentials");
  const lines = ["[other]", "aws_access_key_id = no", "[default]", "aws_access_key_id = S3RVER"];
  writeFileSync(file, [...lines, "aws_secret_access_key=S3RVER", ""].join("\n"));
  const { port } = new URL(server.env["AWS_ENDPOINT_URL_S3"] ?? "");
  let calls = 0;
  const busy = createServer((incoming, outgoing) => {
    calls += 1;
    if (calls % 3 === 1) return outgoing.writeHead(503).end("<Error><Code>SlowDown</Code></Error>");
    if (calls % 3 === 2) return outgoing.destroy();
    const { method, url, headers } = incoming;
    const onward = request({ port, method, path: url, headers }, (reply) => {
      outgoing.writeHead(reply.statusCode ?? 0, reply.headers);
      reply.pipe(outgoing);
    });
    return incoming.pipe(onward);
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void busy.close());
  await once(busy, "listening");
  const endpoint = `http://127.0.0.1:${(busy.address() as AddressInfo).port}`;
  const env = { AWS_ENDPOINT_URL_S3: endpoint, AWS_SHARED_CREDENTIALS_FILE: file };
  replica = openReplica(`s3://heddle/a/${prefix}`, HOUR_MS, env);
  const content = randomBytes(100_000);
  await copied("job_A/1.0", { x: content });
  const back = readFileSync(join(await restored("job_A/1.0"), "x"));
  const digest = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
  expect(digest(back)).toBe(digest(content));
  expect(calls).toBeGreaterThan(9);
});
