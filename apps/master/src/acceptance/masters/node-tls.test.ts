// holds: sec-join-token, sec-enroll-key

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServiceError } from "@grpc/grpc-js";
import { createApiKey } from "@heddle/auth/api-key";
import { eventually } from "@heddle/base/testing/eventually";
import type { Worker } from "@heddle/contracts/api/workers";
import { authorityHash, requestCertificate, signNode } from "@heddle/pki/certificate-authority";
import { formatJoinToken } from "@heddle/pki/join-token";
import { NODE_ROLES, type NodeRole } from "@heddle/pki/node-name";
import { ensureAuthority, readMaterial } from "@heddle/pki/tls-files";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import { CALLERS } from "@heddle/rpc/callers";
import { Peer } from "@heddle/rpc/peer";
import { renewMethod, shipLogsMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { ALL_METHODS, callOutcome } from "@heddle/rpc/testing/call-outcome";
import { describe, expect, it, type TestContext } from "vitest";
import { MasterGroup } from "../../../test/master-group.ts";
import { ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// Certificates between real processes: masters and workers. One test waits for a renewal,
// concurrently with the others.

type OnEnd = TestContext["onTestFinished"];

describe.concurrent("a worker under TLS", () => {
  it("joins with a token once, answers, and restarts without a token", async ({
    onTestFinished,
  }) => {
    const { cluster, token, mint } = await start(onTestFinished);
    await mint("parameter-server");
    const join1 = ["--tls", "--join-token-file", token, "--name", "w"];
    await expect(cluster.startWorker(join1, "other-role")).rejects.toThrow(/not for the worker w/);
    await mint("worker");
    const worker = await cluster.startWorker(join1, "one");
    await cluster.replicasReady(1);
    await expect(cluster.startWorker(join1, "stolen")).rejects.toThrow(/unknown, used, expired/);
    await cluster.stop(worker, "SIGKILL");
    await cluster.startWorker(["--tls", "--name", "w"], "one");
    await cluster.replicasReady(1);
    const { choices } = await cluster.openai.chat.completions.create({
      model: TINY,
      max_tokens: 4,
      messages: [{ role: "user", content: "hello" }],
    });
    expect(choices).toHaveLength(1);
    const attached = await attachedAt(cluster);
    writeFileSync(join(cluster.data, "token"), "a-token-of-another-cluster");
    await expect(cluster.startWorker([], "plain")).resolves.toBeDefined();
    expect(Math.abs((await attachedAt(cluster)) - attached)).toBeLessThan(5_000);
  });

  it("joins by an enrolment key, again without a certificate, until it is revoked", async ({
    onTestFinished,
  }) => {
    const { cluster } = await start(onTestFinished);
    const { authority_sha256: hash } = await json(cluster, "GET", "/api/v1/cluster/status");
    const file = join(cluster.data, "enroll-key");
    const make = async (scope: string) => {
      const key = await json(cluster, "POST", "/api/v1/keys", { name: "k", scopes: [scope] });
      writeFileSync(file, `hdlj_${hash}::${key["key"]}\n`);
      return key["id"];
    };
    const joins = (name: string) =>
      cluster.startWorker(["--tls", "--enroll-key-file", file, "--name", name], name);
    await make("cluster:read");
    await expect(joins("a")).rejects.toThrow(/lacks the scope cluster:enroll/);
    const id = await make("cluster:enroll");
    const [first] = await Promise.all([joins("a"), joins("b")]);
    await cluster.replicasReady(2);
    await cluster.stop(first, "SIGKILL");
    rmSync(join(cluster.data, "a", "node-certificate.json"));
    await joins("a");
    await cluster.replicasReady(2);
    const events = await json(cluster, "GET", "/api/v1/events/log?type=NODE_ENROLMENT");
    expect(events["data"]).toHaveLength(3);
    await cluster.request("DELETE", `/api/v1/keys/${id}`);
    await expect(joins("c")).rejects.toThrow(/has been revoked/);
  });

  it("joins by the enrolment key that the masters were started with", async ({
    onTestFinished,
  }) => {
    const folder = mkdtempSync(join(tmpdir(), "heddle-enroll-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const ca = join(folder, "ca.pem");
    const { certificate } = await ensureAuthority(ca);
    const file = join(folder, "enroll-key");
    const secret = createApiKey("live").text;
    const write = (hash: string) =>
      writeFileSync(file, formatJoinToken({ authorityHash: hash, secret }));
    const flags = ["--ca-file", ca, "--enroll-key-file", file];
    write("0".repeat(64));
    await expect(start(onTestFinished, ...flags)).rejects.toThrow(/another certificate authority/);
    write(authorityHash(certificate));
    const { cluster } = await start(onTestFinished, ...flags);
    await cluster.startWorker(["--tls", "--enroll-key-file", file, "--name", "w"], "one");
    await cluster.replicasReady(1);
    await cluster.stop(cluster.master, "SIGKILL");
    await cluster.startMaster();
    const { data } = await json(cluster, "GET", "/api/v1/keys");
    const names = (data as { name: string }[]).map(({ name }) => name).sort();
    expect(names).toEqual(["bootstrap administrator", "node enrolment"]);
  });

  // holds: sec-revoked
  it("whose certificate is revoked leaves, renews no more, and no node serves it", async ({
    onTestFinished,
  }) => {
    const { cluster, token, mint } = await start(onTestFinished);
    const join1 = (name: string) => ["--tls", "--join-token-file", token, "--name", name];
    await mint("worker", "stolen");
    await cluster.startWorker(join1("stolen"), "one");
    await mint("worker", "kept");
    await cluster.startWorker(join1("kept"), "two");
    await cluster.replicasReady(2);
    const named = async (name: string) => {
      const { data } = await json(cluster, "GET", "/api/v1/workers");
      return (data as Worker[]).find((worker) => worker.name === name);
    };
    const material = await readMaterial(join(cluster.data, "one"));
    const tls = new TlsIdentity(material!);
    const { address: kept } = (await named("kept"))!;
    const other = new Peer(kept, { clusterToken: "", tls }, "worker");
    onTestFinished(() => other.close());
    const weights = ALL_METHODS.find(({ path }) => path.endsWith("/ReadWeights"))!;
    expect(await callOutcome(other, weights)).toBe("invalid_value");
    const logs = await openStream(cluster.grpc, tls);
    onTestFinished(() => logs.close());
    const { id } = (await named("stolen"))!;
    const reply = await cluster.request("POST", `/api/v1/workers/${id}/revoke`);
    expect(reply.status).toBe(202);
    expect(await logs.end).toBe("permission_denied");
    await cluster.replicasReady(1);
    expect((await named("stolen"))?.attached ?? false).toBe(false);
    await eventually(async () => (await callOutcome(other, weights)) === "permission_denied");
    const peer = new Peer(cluster.grpc, { clusterToken: "", tls });
    onTestFinished(() => peer.close());
    const { csr } = await requestCertificate();
    const renewed = peer.unary(renewMethod, { csr }, { deadlineMs: 10_000 });
    await expect(renewed).rejects.toMatchObject({ code: "permission_denied" });
    await mint("worker", "stolen");
    await expect(cluster.startWorker(join1("stolen"), "three")).rejects.toThrow(/just revoked/);
    await mint("worker", "new");
    await cluster.startWorker(join1("new"), "three");
    await cluster.replicasReady(2);
    expect(await named("kept")).toMatchObject({ attached: true });
    const { data } = await json(cluster, "GET", "/api/v1/events/log?type=NODE_REVOKE");
    expect(data).toHaveLength(1);
    // Without a master nothing but its own file says so.
    await cluster.stop(cluster.master, "SIGKILL");
    const keptWorker = cluster.workers[1]!;
    await cluster.stop(keptWorker, "SIGKILL");
    const port = new URL(`tcp://${kept}`).port;
    await cluster.startWorker(["--tls", "--name", "kept", "--grpc-port", port], "two");
    const again = new Peer(kept, { clusterToken: "", tls }, "worker");
    onTestFinished(() => again.close());
    expect(await callOutcome(again, weights)).toBe("permission_denied");
  });

  // holds: sec-tls-renewal
  it("renews its certificate while attached, and stays attached", async ({ onTestFinished }) => {
    // Renewed after 20 s of 30: only the renewal needs its certificate.
    const { cluster, token, mint } = await start(onTestFinished, "--certificate-seconds", "45");
    await mint("worker");
    await cluster.startWorker(["--tls", "--join-token-file", token, "--name", "w"], "one");
    await cluster.replicasReady(1);
    const attached = await attachedAt(cluster);
    await cluster.until(
      async () => /"service":"worker".*the certificate was renewed/.test(cluster.output),
      "the worker has renewed its certificate",
      120_000,
    );
    expect(Math.abs((await attachedAt(cluster)) - attached)).toBeLessThan(5_000);
  });
});

/** A stream of logs to a master, which stays open; `end` is how it ends. */
async function openStream(master: string, tls: TlsIdentity) {
  const peer = new Peer(master, { clusterToken: "", tls });
  const stream = peer.duplex(shipLogsMethod);
  const { promise: end, resolve } = Promise.withResolvers<string>();
  stream.on("error", (error: ServiceError) => resolve(fromStatus(error, "the master").code));
  stream.on("end", () => resolve("ended"));
  stream.on("data", () => undefined);
  // Its answer comes after the master has the stream.
  await peer.unary(renewMethod, { csr: "" }, { deadlineMs: 30_000 }).catch(() => undefined);
  return { end, close: () => peer.close() };
}

// holds: sec-callers
it("nodes under TLS: each refuses every role's certificate all other roles' methods", async ({
  onTestFinished,
}) => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-roles-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const ca = join(folder, "ca.pem");
  const authority = await ensureAuthority(ca);
  const { cluster, token, mint } = await start(onTestFinished, "--ca-file", ca);
  const flags = ["--tls", "--join-token-file", token];
  await mint("worker");
  await cluster.startWorker([...flags, "--name", "w"], "one");
  await mint("parameter-server", "p");
  await cluster.startParameterServer("p", flags);
  const attached = async () =>
    (await json(cluster, "GET", "/api/v1/workers"))["data"] as readonly Worker[];
  await eventually(async () => (await attached()).length === 2, "both are attached");
  const servers = new Map<NodeRole, string>([["master", cluster.grpc]]);
  for (const { kind, address } of await attached()) servers.set(kind, address);
  expect(servers.size).toBe(3);
  const refusals = new Map<string, number>();
  for (const role of NODE_ROLES) {
    const { privateKey, csr } = await requestCertificate();
    // A worker of the cluster, but another one.
    const certificate = await signNode(authority, csr, { role, name: "x" }, 3_600_000);
    const material = { authority: authority.certificate, certificate, privateKey };
    for (const [kind, address] of servers) {
      const peer = new Peer(address, { clusterToken: "", tls: new TlsIdentity(material) }, kind);
      onTestFinished(() => peer.close());
      for (const method of ALL_METHODS) {
        const callers = CALLERS[method.path];
        if (callers === "anyone" || callers?.includes(role)) continue;
        const outcome = await callOutcome(peer, method);
        expect(["permission_denied", "unserved"], `${role}: ${method.path}`).toContain(outcome);
        const key = `${kind} ${outcome}`;
        refusals.set(key, (refusals.get(key) ?? 0) + 1);
      }
    }
  }
  for (const kind of NODE_ROLES) {
    expect(refusals.get(`${kind} permission_denied`), kind).toBeGreaterThan(10);
  }
});

async function json(
  cluster: ProcessCluster,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, unknown>> {
  return (await cluster.request(method, path, body)).json() as Promise<Record<string, unknown>>;
}

/** A master under TLS, and a function that creates a join token for a role in a file. */
async function start(onTestFinished: OnEnd, ...masterFlags: string[]) {
  const cluster = await ProcessCluster.start({
    workers: 0,
    masterFlags: ["--tls", ...masterFlags],
  });
  onTestFinished(() => cluster.close());
  const token = join(cluster.data, "join-token");
  const mint = async (role: string, name = "w") => {
    const reply = await cluster.request("POST", "/api/v1/cluster/join-tokens", { role, name });
    writeFileSync(token, ((await reply.json()) as { token: string }).token);
  };
  return { cluster, token, mint };
}

/** When the only worker attached, in milliseconds; computed per call, and so slightly inexact. */
async function attachedAt(cluster: ProcessCluster): Promise<number> {
  const reply = await cluster.request("GET", "/api/v1/workers");
  const { data } = (await reply.json()) as { data: { attached_at: string }[] };
  expect(data).toHaveLength(1);
  return Date.parse(data[0]?.attached_at ?? "");
}

describe.concurrent("masters under TLS", () => {
  it("join with a token once, get the authority, and survive its creator", async ({
    onTestFinished,
  }) => {
    const flags = ["--tls"];
    const group = new MasterGroup(1, flags);
    onTestFinished(() => group.close());
    const token = join(group.folder, "join-token");
    group.adds = false;
    await group.startAll();
    flags.push("--join-token-file", token);
    for (const name of ["master-2", "master-3"]) {
      await mintFor(group, token, name);
      await group.start(name);
      await eventually(
        async () =>
          (await group.status("master-1")).masters.some(
            ({ id, role }) => id === name && role === "follower",
          ),
        `${name} votes`,
      );
    }
    await group.end("master-1", "SIGKILL");
    await group.leader();
    await group.createKey("master-3", "without the first");
    await group.end("master-2", "SIGKILL");
    await group.start("master-2");
    await group.leader();
    await group.end("master-2", "SIGKILL");
    group.wipe("master-2");
    // Without a majority no master knows whether the token is valid, and it would retry forever.
    await group.start("master-1");
    await group.leader();
    await expect(group.start("master-2")).rejects.toThrow(/unknown, used, expired/);
  });

  it("refuse one without a certificate, and one of another authority", async ({
    onTestFinished,
  }) => {
    const flags = ["--tls"];
    const group = new MasterGroup(1, flags);
    onTestFinished(() => group.close());
    group.adds = false;
    await group.startAll();
    flags.pop();
    await expect(startBriefly(group, "master-2")).rejects.toThrow("still waits");
    flags.push("--tls");
    await expect(group.start("master-3")).rejects.toThrow(
      /cluster-ca\.pem is missing.*heddle cluster add/,
    );
    expect((await group.status("master-1")).masters).toHaveLength(1);
  });
});

async function mintFor(group: MasterGroup, file: string, name: string): Promise<void> {
  const path = "/api/v1/cluster/join-tokens";
  const reply = await group.request("master-1", "POST", path, { role: "master", name });
  writeFileSync(file, ((await reply.json()) as { token: string }).token);
}

/** A master without a group waits forever, so its start must be aborted. */
function startBriefly(group: MasterGroup, name: string): Promise<void> {
  const { promise, reject } = Promise.withResolvers<void>();
  setTimeout(() => reject(new Error("still waits")), 4_000);
  const started = group.start(name);
  started.catch(() => undefined);
  return Promise.race([started, promise]);
}
