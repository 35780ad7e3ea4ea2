// holds: sec-tls

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type {
  ServerDuplexStream,
  ServerUnaryCall,
  ServiceError,
  sendUnaryData,
} from "@grpc/grpc-js";
import type { Log } from "@heddle/observability/logger";
import {
  authorityHash,
  type CertificateAuthority,
  createAuthority,
  requestCertificate,
  signNode,
} from "@heddle/pki/certificate-authority";
import { CertificateRenewal } from "@heddle/pki/certificate-renewal";
import { formatJoinToken, parseJoinToken } from "@heddle/pki/join-token";
import type { NodeRole } from "@heddle/pki/node-name";
import { ensureAuthority, readMaterial, writeMaterial } from "@heddle/pki/tls-files";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import { callerOf } from "@heddle/rpc/credentials";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { Peer } from "@heddle/rpc/peer";
import {
  attachMethod,
  clusterService,
  enrollmentService,
  progressMethod,
  raftService,
  renewMethod,
} from "@heddle/rpc/proto";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { joinCluster } from "./join-cluster.ts";

const HOUR_MS = 3_600_000;
const quiet: Log = { info: () => {}, warn: () => {}, error: () => {} };
const folder = mkdtempSync(join(tmpdir(), "heddle-tls-"));
const closing: (() => unknown)[] = [];
let ours: CertificateAuthority;
let theirs: CertificateAuthority;
let server: BoundServer;
let serverTls: TlsIdentity;
let joins: string[] = [];

async function identity(
  authority: CertificateAuthority,
  role: NodeRole,
  lifetimeMs = HOUR_MS,
): Promise<TlsIdentity> {
  const { privateKey, csr } = await requestCertificate();
  const certificate = await signNode(authority, csr, { role, name: `${role}-1` }, lifetimeMs);
  return new TlsIdentity({ authority: authority.certificate, certificate, privateKey });
}

function dial(tls: TlsIdentity, role: NodeRole = "master"): Peer {
  const peer = new Peer(server.address, { clusterToken: "", tls }, role);
  closing.push(() => peer.close());
  return peer;
}

const ask = (peer: Peer) => peer.unary(progressMethod, {}, { deadlineMs: 5_000 });

beforeAll(async () => {
  [ours, theirs] = await Promise.all([createAuthority(), createAuthority()]);
  serverTls = await identity(ours, "master");
  const credentials = { clusterToken: "", tls: serverTls };
  server = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const empty = (_call: unknown, reply: sendUnaryData<object>) => reply(null, {});
  const unused = () => undefined;
  server.server.addService(raftService, {
    exchange: unused,
    installSnapshot: unused,
    introduce: empty,
    progress: (_call: unknown, reply: sendUnaryData<object>) => reply(null, { members: [] }),
  });
  server.server.addService(clusterService, {
    attach: (stream: ServerDuplexStream<object, object>) => {
      stream.on("data", () => stream.write({ heartbeatIntervalMs: 1 }));
      stream.on("end", () => stream.end());
    },
  });
  server.server.addService(enrollmentService, {
    join: (call: ServerUnaryCall<{ secret: string }, object>, reply: sendUnaryData<object>) => {
      joins.push(call.request.secret);
      reply(null, { certificate: "c", authority: "a", authorityKey: "" });
    },
    renew: empty,
  });
});
afterEach(() => {
  for (const close of closing.splice(0)) close();
  joins = [];
});
afterAll(async () => {
  await closeServer(server.server, 0);
  rmSync(folder, { recursive: true });
});

test("TLS: a certificate opens exactly the services for its role", async () => {
  expect(await ask(dial(await identity(ours, "master")))).toEqual({ members: [] });
  const worker = dial(await identity(ours, "worker"));
  await expect(ask(worker)).rejects.toMatchObject({
    code: "permission_denied",
    message: expect.stringContaining("worker-1 is a worker; this is for a master"),
  });
  const stream = worker.duplex(attachMethod);
  stream.write({ register: {} });
  await new Promise((resolve, reject) => stream.once("data", resolve).once("error", reject));
  stream.cancel();
  stream.on("error", () => undefined);
});

test("TLS: another cluster's certificate, an expired one and none are refused", async () => {
  const foreign = await identity(theirs, "master");
  const disguised = new TlsIdentity({ ...foreign.material, authority: ours.certificate });
  await expect(ask(dial(disguised))).rejects.toMatchObject({ code: "invalid_api_key" });
  const expired = await identity(ours, "master", -1_000);
  await expect(ask(dial(expired))).rejects.toMatchObject({ code: "invalid_api_key" });
  const bare = new TlsIdentity({ authority: ours.certificate, certificate: "", privateKey: "" });
  await expect(ask(dial(bare))).rejects.toMatchObject({ code: "invalid_api_key" });
  const renewal = dial(bare).unary(renewMethod, { csr: "" }, { deadlineMs: 5_000 });
  await expect(renewal).rejects.toMatchObject({ code: "invalid_api_key" });
});

test("TLS: a caller refuses a server of another authority or role", async () => {
  await expect(ask(dial(await identity(theirs, "master")))).rejects.toMatchObject({
    code: "unavailable",
  });
  await expect(ask(dial(await identity(ours, "master"), "worker"))).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("this is for a worker"),
  });
});

test("TLS: a plain-text client finds no server", async () => {
  const peer = new Peer(server.address, { clusterToken: "a token of 16 and more" });
  closing.push(() => peer.close());
  await expect(ask(peer)).rejects.toMatchObject({ code: "unavailable" });
});

test("TLS: an expiring certificate ends no open stream, but admits no new call", async () => {
  // Longer than a loaded machine stalls before the first call.
  const brief = await identity(ours, "worker", 7_000);
  const peer = dial(brief);
  const stream = peer.duplex(attachMethod);
  const next = () => new Promise((resolve) => stream.once("data", resolve));
  stream.write({ register: {} });
  await next();
  await delay(9_000);
  stream.write({ heartbeat: {} });
  await next();
  const other = peer.duplex(attachMethod);
  other.write({ register: {} });
  await expect(
    new Promise((_resolve, reject) => other.once("error", reject)),
  ).rejects.toMatchObject({ details: expect.stringContaining("expired") });
  stream.cancel();
  stream.on("error", () => undefined);
});

// holds: sec-revoked
test("revocation: ends the node's open calls, whatever it sends, and is kept", async () => {
  const directory = mkdtempSync(join(folder, "followed-"));
  const followed = new FollowedCluster(directory);
  const bound = await bindServer({
    host: "127.0.0.1",
    port: 0,
    credentials: { clusterToken: "", tls: serverTls },
    isRevoked: (node, { valid_from: from }) => followed.revoked.has(node, Date.parse(from)),
  });
  closing.push(() => closeServer(bound.server, 0));
  followed.onRevoked(bound.endRevoked);
  const cancelled: string[] = [];
  let received = 0;
  bound.server.addService(clusterService, {
    attach: (stream: ServerDuplexStream<object, object>) => {
      const { name } = callerOf(stream);
      stream.on("data", () => {
        received++;
        stream.write({ heartbeatIntervalMs: 1 });
      });
      stream.on("cancelled", () => cancelled.push(name));
    },
  });
  const attach = async (name: string) => {
    const { privateKey, csr } = await requestCertificate();
    const certificate = await signNode(ours, csr, { role: "worker", name }, HOUR_MS);
    const tls = new TlsIdentity({ authority: ours.certificate, certificate, privateKey });
    const peer = new Peer(bound.address, { clusterToken: "", tls });
    closing.push(() => peer.close());
    const stream = peer.duplex(attachMethod);
    const ended = new Promise<ServiceError>((resolve) => stream.once("error", resolve));
    stream.write({ register: {} });
    await new Promise((resolve) => stream.once("data", resolve));
    return { peer, stream, ended };
  };
  const [stolen, kept] = await Promise.all([attach("stolen"), attach("kept")]);
  const before = received;
  await followed.revoke([["worker/stolen", Date.now()]]);
  for (let at = 0; at < 10; at++) stolen.stream.write({ heartbeat: {} });
  expect(await stolen.ended).toMatchObject({
    details: expect.stringContaining("the certificates of the worker stolen were revoked"),
  });
  expect([cancelled, received]).toEqual([["stolen"], before]);
  kept.stream.write({ heartbeat: {} });
  await new Promise((resolve) => kept.stream.once("data", resolve));
  kept.stream.on("error", () => undefined).cancel();
  const restarted = new FollowedCluster(directory).revoked;
  const has = (name: string) => restarted.has({ role: "worker", name }, Date.now() - 1_000);
  expect([has("stolen"), has("kept")]).toEqual([true, false]);
  writeFileSync(join(directory, "revoked-nodes.json"), "{");
  expect(() => new FollowedCluster(directory)).toThrow(/revoked-nodes.json is no JSON/);
});

// holds: sec-tls-renewal
test("renewal: open streams continue, and new connections use the new certificate", async () => {
  const first = serverTls.material.certificate;
  const worker = dial(await identity(ours, "worker"));
  const stream = worker.duplex(attachMethod);
  const next = () => new Promise((resolve) => stream.once("data", resolve));
  stream.write({ register: {} });
  await next();
  const brief = await identity(ours, "master", 3_000);
  serverTls.update(brief.material);
  const renewed = Promise.withResolvers<void>();
  const renewal = new CertificateRenewal(
    serverTls,
    async () => {
      setImmediate(renewed.resolve);
      return (await identity(ours, "master")).material;
    },
    quiet,
  );
  await renewed.promise;
  renewal.close();
  // The first certificate has expired: a new connection can only have received its replacement.
  await delay(5_000);
  expect(await ask(dial(await identity(ours, "master")))).toEqual({ members: [] });
  stream.write({ heartbeat: {} });
  await next();
  expect(serverTls.material.certificate).not.toBe(first);
  stream.cancel();
  stream.on("error", () => undefined);
});

// holds: sec-tls-renewal
test("renewal: a caller's old connection admits its calls beyond the first certificate", async () => {
  // Longer than a loaded machine stalls before the first call.
  const brief = await identity(ours, "master", 7_000);
  const untilMs = Date.now() + 9_000;
  const peer = dial(brief);
  expect(await ask(peer)).toEqual({ members: [] });
  const worker = await identity(ours, "worker", 7_000);
  const attached = dial(worker);
  const stream = attached.duplex(attachMethod);
  const next = () => new Promise((resolve) => stream.once("data", resolve));
  stream.write({ register: {} });
  await next();
  brief.update((await identity(ours, "master")).material);
  worker.update((await identity(ours, "worker")).material);
  const again = attached.duplex(attachMethod);
  again.write({ register: {} });
  await new Promise((resolve) => again.once("data", resolve));
  await delay(untilMs - Date.now());
  expect(await ask(peer)).toEqual({ members: [] });
  stream.write({ heartbeat: {} });
  await next();
  for (const each of [stream, again]) each.on("error", () => undefined).cancel();
});

// holds: sec-join-token
test("join: the secret is sent only to the authority in the token", async () => {
  const options = { master: server.address, role: "worker" as const, name: "w" };
  const secret = "0123456789abcdef";
  const wrong = formatJoinToken({ authorityHash: authorityHash(theirs.certificate), secret });
  await expect(joinCluster({ ...options, token: wrong })).rejects.toMatchObject({
    code: "invalid_api_key",
  });
  expect(joins).toEqual([]);
  const right = formatJoinToken({ authorityHash: authorityHash(ours.certificate), secret });
  expect((await joinCluster({ ...options, token: right })).material.certificate).toBe("c");
  expect(joins).toEqual([secret]);
  expect(() => parseJoinToken(secret)).toThrow(/hdlj_HASH::SECRET/);
});

test("authority: of concurrent processes one creates it, and all use it", async () => {
  const path = join(folder, "ca.pem");
  const made = await Promise.all([ensureAuthority(path), ensureAuthority(path)]);
  expect(made[0]).toEqual(made[1]);
  expect(await ensureAuthority(path)).toEqual(made[0]);
});

test("certificate: the next start reuses it unless it expires soon", async () => {
  const { material } = await identity(ours, "worker");
  await writeMaterial(folder, material);
  expect(await readMaterial(folder)).toEqual(material);
  await writeMaterial(folder, (await identity(ours, "worker", -30_000)).material);
  expect(await readMaterial(folder)).toBeUndefined();
});

test("certificate: a request without proof of its key gets none", async () => {
  const { csr } = await requestCertificate();
  const body = Buffer.from(csr.replace(/-----[^-]+-----|\s/g, ""), "base64");
  body[body.length - 1] = (body[body.length - 1] as number) ^ 1;
  const forged = `-----BEGIN CERTIFICATE REQUEST-----\n${body.toString("base64")}\n-----END CERTIFICATE REQUEST-----`;
  for (const bad of [forged, "nonsense"]) {
    await expect(signNode(ours, bad, { role: "worker", name: "w" }, HOUR_MS)).rejects.toMatchObject(
      {
        code: "invalid_value",
      },
    );
  }
});
