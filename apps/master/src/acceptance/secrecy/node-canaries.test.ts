// holds: no-secret-leaks

import { execFileSync } from "node:child_process";
import { createPrivateKey, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApiKey } from "@heddle/auth/api-key";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { eventually } from "@heddle/base/testing/eventually";
import { writeKeyProgram } from "@heddle/base/testing/key-program";
import { authorityHash } from "@heddle/pki/certificate-authority";
import { formatJoinToken } from "@heddle/pki/join-token";
import { ensureAuthority, readMaterial } from "@heddle/pki/tls-files";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";
import {
  type Canary,
  CanarySearch,
  filesBelow,
  type Place,
} from "../../../test/secrecy/canary-search.ts";
import { RecordingProxy } from "../../../test/secrecy/recording-proxy.ts";

// A run under TLS, with a key management service: the secrets of nodes and of what they call.

const SECRETS_KEY = randomBytes(32);
const REDIS_PASSWORD = `canary redis ${randomBytes(9).toString("hex")}`;
const UPSTREAM_KEY = `canary-upstream-${randomBytes(9).toString("hex")}`;
const HUB_TOKEN = `canary-hub-${randomBytes(9).toString("hex")}`;
const ENROLL_KEY = createApiKey("live").text;

const folder = mkdtempSync(join(tmpdir(), "heddle-node-canaries-"));
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
let cluster: ProcessCluster;
let proxy: RecordingProxy;
let vendor: Server;
let authority: string;
/** The address of a server in place of the hub and of an upstream. */
let origin: string;

beforeAll(async () => {
  // It repeats what it is sent, as some servers do.
  vendor = createServer((request, reply) => {
    const message = `Incorrect key: ${request.headers.authorization}`;
    reply.writeHead(400, { "content-type": "application/json" });
    reply.end(JSON.stringify({ error: { message } }));
  });
  await new Promise<void>((resolve) => vendor.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(vendor.address() as AddressInfo).port}`;
  const program = writeKeyProgram(join(folder, "kms"), "key of the service");
  const clear = SECRETS_KEY.toString("base64");
  const wrapped = execFileSync(program, ["wrap"], { input: clear, encoding: "utf8" });
  vi.stubEnv("HEDDLE_SECRETS_KEY_COMMAND", program);
  vi.stubEnv("HF_ENDPOINT", origin);
  vi.stubEnv("HF_TOKEN", HUB_TOKEN);
  vi.stubEnv("HEDDLE_LOG_LEVEL", "debug");
  const { certificate, privateKey } = await ensureAuthority(join(folder, "ca.pem"));
  authority = privateKey;
  const enroll = formatJoinToken({ authorityHash: authorityHash(certificate), secret: ENROLL_KEY });
  cluster = await ProcessCluster.start({
    workers: 0,
    isBare: true,
    masterFlags: [
      "--tls",
      "--ca-file",
      join(folder, "ca.pem"),
      "--enroll-key-file",
      file("enroll-key", enroll),
      "--secrets-key-file",
      file("secrets-key", `wrapped:${wrapped}`),
      "--limits-redis",
      "redis://127.0.0.1:9/0",
      "--limits-redis-password-file",
      file("redis-password", REDIS_PASSWORD),
    ],
  });
  proxy = await RecordingProxy.start(() => cluster.url);
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await cluster?.close();
  proxy?.close();
  vendor?.close();
  rmSync(folder, { recursive: true });
});

async function call(
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown>> {
  const reply = await fetch(`${proxy.url}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${cluster.adminKey}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  return text.startsWith("{") ? JSON.parse(text) : { text };
}

/** Workers that join by the key and by a token; resolves with the token's secret. */
async function startNodes(): Promise<string> {
  const upstreams = {
    origins: [origin],
    keys: { vendor: { file: file("vendor-key", UPSTREAM_KEY), origins: [origin] } },
  };
  const enroll = ["--tls", "--enroll-key-file", join(folder, "enroll-key")];
  const config = file("upstreams.json", JSON.stringify(upstreams));
  const asks = ["--upstreams", config, "--weights-hosts", "127.0.0.1"];
  await cluster.startWorker([...enroll, ...asks, "--name", "worker-1"], "worker-1");
  const member = { role: "parameter-server", name: "server-1" };
  const { token } = await call("POST", "/cluster/join-tokens", member);
  const given = ["--tls", "--join-token-file", file("join-token", String(token))];
  await cluster.startParameterServer("server-1", given);
  return String(token).split("::").at(-1) ?? "";
}

/** Models of an upstream and of the hub, which both refuse with what they were sent. */
async function useKeys(): Promise<void> {
  const engine = {
    kind: "openai",
    base_url: `${origin}/v1`,
    model: "m",
    dialect: "openai",
    api_key: "vendor",
  };
  await call("POST", "/models", { id: "routed", engine, context_window: 4_096 });
  const weights = { sources: ["hf://owner/repo/m.gguf"], sha256: "0".repeat(64) };
  await call("POST", "/models", { id: "pulled", weights });
  const failed = async (id: string) => (await call("GET", `/models/${id}`))["status"] === "failed";
  for (const id of ["routed", "pulled"]) await eventually(() => failed(id), `${id} has failed`);
  const messages = [{ role: "user", content: "Hi" }];
  await call("POST", "/chat/completions", { model: "routed", messages });
}

/** A node's private key: the scalar, and the line of its PEM text that has most of it. */
function keyCanaries(name: string, pem: string, allowed?: RegExp): Canary[] {
  const { d = "" } = createPrivateKey(pem).export({ format: "jwk" });
  const line = pem.split("\n")[2] ?? "";
  return [
    { name: `${name} (PEM)`, secret: line, ...(allowed && { allowed }) },
    { name, secret: Buffer.from(d, "base64url"), ...(allowed && { allowed }) },
  ];
}

async function nodeKeys(): Promise<Canary[]> {
  const keys = readSecretKeys(undefined, { HEDDLE_SECRETS_KEY: SECRETS_KEY.toString("base64") });
  const own = await readMaterial(join(cluster.data, "master"), keys);
  const found = [...keyCanaries("authority", authority), ...keyCanaries("master", own!.privateKey)];
  for (const name of ["worker-1", "server-1"]) {
    const material = await readMaterial(join(cluster.data, name));
    const allowed = new RegExp(`^file .*/${name}/node-certificate\\.json$`);
    found.push(...keyCanaries(name, material!.privateKey, allowed));
  }
  return found;
}

test("secrets: a run under TLS leaves none of nodes in files, outputs and replies", async () => {
  const token = await startNodes();
  await useKeys();
  for (const path of ["/workers", "/keys", "/models", "/cluster/status", "/events/log"]) {
    await call("GET", path);
  }
  await call("GET", "/cluster/backup");
  const { adminKey } = cluster;
  for (const child of [...cluster.workers, cluster.master]) await cluster.stop(child);
  const places: Place[] = [
    ...filesBelow(cluster.data),
    ...filesBelow(folder),
    { name: "output", bytes: Buffer.from(cluster.output) },
    ...proxy.replies,
  ];
  const canaries: Canary[] = [
    ...(await nodeKeys()),
    { name: "secrets key", secret: SECRETS_KEY },
    { name: "bootstrap key", secret: adminKey, allowed: /^file .*\/key$/ },
    { name: "enrolment key", secret: ENROLL_KEY, allowed: /^file .*\/enroll-key$/ },
    {
      name: "join token",
      secret: token,
      allowed: /^(file .*\/join-token|reply POST .*join-tokens)$/,
    },
    { name: "password of Redis", secret: REDIS_PASSWORD, allowed: /^file .*\/redis-password$/ },
    { name: "key of an upstream", secret: UPSTREAM_KEY, allowed: /^file .*\/vendor-key$/ },
    { name: "token of the hub", secret: HUB_TOKEN },
  ];
  expect(new CanarySearch(canaries).leaks(places)).toEqual([]);
  const kept = statSync(join(cluster.data, "worker-1", "node-certificate.json"));
  expect(kept.mode & 0o077).toBe(0);
  // Each is where it may be: the search looks at the right texts.
  const unnamed = canaries.map(({ allowed: _, ...each }) => each);
  const seen = new CanarySearch(unnamed).leaks(places).map((leak) => leak.replace(/ \(.*/, ""));
  for (const name of [
    "worker-1",
    "server-1",
    "enrolment key",
    "join token",
    "key of an upstream",
  ]) {
    expect(seen, name).toContain(name);
  }
});
