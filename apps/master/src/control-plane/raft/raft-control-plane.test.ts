import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { eventually } from "@heddle/base/testing/eventually";
import { admissionProof } from "@heddle/consensus/member/admission";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import { Formation } from "@heddle/consensus/member/formation";
import { startIdentity } from "@heddle/consensus/member/identity";
import { NEWEST_VERSION as newestVersion } from "@heddle/control/cluster-version";
import type { ApiKeyRecord } from "@heddle/control/state";
import { createLogger } from "@heddle/observability/logger";
import { createAuthority, requestCertificate, signNode } from "@heddle/pki/certificate-authority";
import { formatJoinToken, joinSecretId, newJoinSecret } from "@heddle/pki/join-token";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { introduceMethod, locateMethod } from "@heddle/rpc/proto";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import { afterEach, beforeEach, expect, test } from "vitest";
import { serveRaft } from "../../../test/serve-raft.ts";
import { RaftControlPlane } from "./raft-control-plane.ts";

const byToken: NodeCredentials = { clusterToken: "a-token-for-tests-only" };
const logger = createLogger({ service: "master-test", level: "silent" });

interface Opened {
  readonly name: string;
  readonly server: BoundServer;
  readonly plane: RaftControlPlane;
  readonly faults: string[];
}

let folder: string;
let opened: Opened[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-plane-"));
});
afterEach(async () => {
  for (const each of opened) await close(each);
  opened = [];
  await rm(folder, { recursive: true });
});

async function close({ plane, server }: Opened): Promise<void> {
  await plane.close();
  await closeServer(server.server, 100);
}

async function open(
  name: string,
  server: BoundServer,
  peers: ReadonlyMap<string, string>,
  {
    directoryName = name,
    signal = new AbortController().signal,
    credentials = byToken,
    joinToken = (): string | undefined => undefined,
  } = {},
): Promise<Opened> {
  const directory = join(folder, directoryName);
  await mkdir(directory, { recursive: true });
  const lock = await lockDirectory(directory);
  const faults: string[] = [];
  const onFatal = (error: Error) => faults.push(error.message);
  const onRemoved = onFatal;
  const given = { directory, lock, name, peers, credentials, joinToken };
  const service = await serveRaft(server);
  const parts = { ...given, server, service, logger, onFatal, onRemoved };
  try {
    const limits = { segmentBytes: 2 ** 20, hashEveryCommands: 10 };
    const plane = await RaftControlPlane.open({ ...parts, ...limits }, signal);
    const each = { name, server, plane, faults };
    opened.push(each);
    return each;
  } catch (error) {
    await lock.close();
    await closeServer(server.server, 100);
    throw error;
  }
}

/** This many members, or one for each of the credentials. */
async function openGroup(each: number | readonly NodeCredentials[]): Promise<Opened[]> {
  const all = typeof each === "number" ? new Array<NodeCredentials>(each).fill(byToken) : each;
  const bind = (credentials: NodeCredentials) =>
    bindServer({ host: "127.0.0.1", port: 0, credentials });
  const servers = await Promise.all(all.map(bind));
  const peers = new Map(servers.map(({ address }, at) => [`m${at + 1}`, address]));
  return Promise.all(
    servers.map((server, at) => open(`m${at + 1}`, server, peers, { credentials: all[at] })),
  );
}

const keyOf = (id: string): ApiKeyRecord => ({
  id,
  name: "k",
  hash: "0".repeat(64),
  scopes: [],
  models: [],
  limits: {},
  createdAtMs: 0,
});
const create = (id: string) => ({ type: "key.create" as const, atMs: Date.now(), key: keyOf(id) });

// holds: state-exactly-once
test("idempotency: a repeated request is applied once, whichever master it reaches", async () => {
  const [first, second, third] = await openGroup(3);
  if (!first || !second || !third) throw new Error("three were to start");
  await first.plane.readBarrier();
  const request = { idempotency: { id: "caller:0001", fingerprint: "0".repeat(64), answer: "{}" } };
  expect(await first.plane.propose(create("aaaaaaaa"), request)).toEqual({ ok: true });
  expect(await second.plane.propose(create("aaaaaaaa"), request)).toEqual({ ok: true });
  expect(await second.plane.propose(create("aaaaaaaa"))).toMatchObject({ code: "conflict" });
  const leader = opened.find(({ plane }) => plane.status().role === "leader") as Opened;
  await close(leader);
  opened = opened.filter((each) => each !== leader);
  const [left] = opened;
  await left?.plane.readBarrier();
  expect(await left?.plane.propose(create("aaaaaaaa"), request)).toEqual({ ok: true });
  expect(left?.plane.state.keys.size).toBe(1);
});

// holds: ops-reachable
test("progress: connected masters are active, at any time and from any master", async () => {
  const group = await openGroup(3);
  for (const { plane } of group) await plane.readBarrier();
  const inactive: string[] = [];
  for (let asked = 0; asked < 40; asked++) {
    for (const { name, plane } of group) {
      const active = (await plane.progress()).map((member) => member.active);
      if (`${active}` !== "true,true,true") inactive.push(`${name}, ask ${asked}: ${active}`);
    }
    await delay(20);
  }
  expect(inactive).toEqual([]);
});

/** As an administrator does; gives the token with which that master joins. */
async function add(plane: RaftControlPlane, name: string, ttlMs = 600_000): Promise<string> {
  const secret = newJoinSecret();
  const atMs = Date.now();
  const join = { role: "master" as const, name, expiresAtMs: atMs + ttlMs };
  const id = joinSecretId(secret);
  expect(await plane.propose({ type: "join.create", atMs, id, join })).toEqual({ ok: true });
  return formatJoinToken({ authorityHash: undefined, secret });
}

/** A master of an empty directory that looks for its group with the cluster token. */
async function findGroup(of: Opened, name: string, token?: string) {
  const directory = await mkdtemp(join(folder, "foreign-"));
  const identity = await startIdentity(directory, name, { newestVersion });
  const { signal } = new AbortController();
  const peers = new Map([
    [of.name, of.server.address],
    [name, "127.0.0.1:1"],
  ]);
  const known = { directory, identity, peers, credentials: byToken, joinToken: () => token };
  return new Formation({ ...known, log: logger, signal, timeoutMs: 300, newestVersion }).find();
}

// holds: sec-join-token
test("join token of a master: refused without TLS once it has expired", async () => {
  const [only] = await openGroup(1);
  if (!only) throw new Error("one was to start");
  await only.plane.readBarrier();
  const expired = await add(only.plane, "m2", 1);
  await delay(5);
  const refused = { code: "permission_denied", message: expect.stringMatching(/cluster add/) };
  await expect(findGroup(only, "m2", expired)).rejects.toMatchObject(refused);
  expect(only.plane.status().members).toHaveLength(1);
  expect(await findGroup(only, "m2", await add(only.plane, "m2"))).toMatchObject({ id: 2 });
});

// holds: sec-master-join
test("join: a join token of its name admits a master once, the cluster token does not", async () => {
  const [only] = await openGroup(1);
  if (!only) throw new Error("one was to start");
  await only.plane.readBarrier();
  const find = (name: string, token?: string) => findGroup(only, name, token);
  const refused = { code: "permission_denied", message: expect.stringMatching(/cluster add/) };
  await expect(find("m2")).rejects.toMatchObject(refused);
  const token = await add(only.plane, "m2");
  await expect(find("m3", token)).rejects.toMatchObject(refused);
  const guessed = formatJoinToken({ authorityHash: undefined, secret: newJoinSecret() });
  await expect(find("m2", guessed)).rejects.toMatchObject(refused);
  expect(only.plane.status().members).toHaveLength(1);
  expect(await find("m2", token)).toMatchObject({ id: 2 });
  expect(only.plane.state.joins.size).toBe(0);
  // It never started, so its vote is not asked for: a learner that does not catch up costs nothing.
  expect(only.plane.status().members).toMatchObject([{ votes: true }, { votes: false }]);
  // At first the member of that name counts as one that runs.
  const again = { code: expect.stringMatching(/^(permission_denied|conflict)$/) };
  await expect(find("m2", token)).rejects.toMatchObject(again);
  expect(await only.plane.propose(create("aaaaaaaa"))).toEqual({ ok: true });
});

// holds: masters-duplicate-name
test("join: a second master of a name in use is refused, and the first keeps running", async () => {
  const group = await openGroup(3);
  const members = () => group.map(({ plane }) => plane.status().members.map(({ id }) => id));
  await group[0]?.plane.readBarrier();
  const peers = new Map(group.map(({ name, server }) => [name, server.address]));
  const find = async (own: string, token?: string) => {
    const directory = await mkdtemp(join(folder, "second-"));
    const identity = await startIdentity(directory, "m3", { newestVersion });
    const { signal } = new AbortController();
    const all = new Map([...peers, ["m3", own]]);
    const known = { directory, identity, peers: all, credentials: byToken };
    const shown = { ...known, joinToken: () => token };
    return new Formation({ ...shown, log: logger, signal, timeoutMs: 400, newestVersion }).find();
  };
  const [first, , third] = group as [Opened, Opened, Opened];
  await expect(find(third.server.address)).rejects.toMatchObject({
    code: "conflict",
    message: expect.stringMatching(/--peers gives \S+ as this master, m3, but another master/),
  });
  // Nothing answers there: it is to be another master, by a name that it must not have.
  await expect(find("127.0.0.1:1")).rejects.toMatchObject({
    code: "conflict",
    message: expect.stringMatching(/^m3 is a master of this group already, and runs \(member 3 at/),
  });
  await eventually(
    async () => members().every((ids) => ids.join() === "1,2,3"),
    "all have three members",
  );
  await close(third);
  opened = opened.filter((each) => each !== third);
  const token = await add(first.plane, "m3");
  await eventually(async () => {
    const found = await find("127.0.0.1:1", token).catch(() => undefined);
    return found?.id === 4;
  }, "its successor is let in");
});

// holds: masters-lost-answer
test("join: an admitted master that lost the answer asks again, and starts no own log", async () => {
  const [only] = await openGroup(1);
  if (!only) throw new Error("one was to start");
  await only.plane.readBarrier();
  const directory = await mkdtemp(join(folder, "late-"));
  const identity = await startIdentity(directory, "m2", { newestVersion });
  const peers = new Map([
    ["m1", only.server.address],
    ["m2", "127.0.0.1:1"],
  ]);
  const peer = new Peer(only.server.address, byToken);
  const request = {
    name: "m2",
    nonce: identity.nonce,
    address: "127.0.0.1:1",
    peers: ["m1", "m2"],
    supports: newestVersion,
  };
  const admission = admissionProof(await add(only.plane, "m2"), request);
  // The answer to this one is lost.
  expect(
    await peer.unary(introduceMethod, { ...request, admission }, { deadlineMs: 10_000 }),
  ).toMatchObject({ id: 2 });
  peer.close();
  const { signal } = new AbortController();
  const known = { directory, identity, peers, credentials: byToken, log: logger, signal };
  const { id, beginning } = await new Formation({ ...known, newestVersion }).find();
  expect({ id, kind: beginning?.kind }).toEqual({ id: 2, kind: "joining" });
  expect(beginning?.members.map(({ name }) => name)).toEqual(["m1"]);
});

// holds: state-diverged
test("state hash: a master whose state diverged from the others' ends", async () => {
  const [first, second, third] = await openGroup(3);
  if (!first || !second || !third) throw new Error("three were to start");
  await first.plane.propose(create("aaaaaaaa"));
  await second.plane.readBarrier();
  second.plane.state.keys.set("bbbbbbbb", keyOf("bbbbbbbb"));
  for (let at = 0; at < 30; at++) await first.plane.propose(create(`cccccc${10 + at}`));
  await eventually(async () => second.faults.length > 0, "the second one ends");
  expect(second.faults[0]).toMatch(/differs from that of a majority/);
  expect([...first.faults, ...third.faults]).toEqual([]);
  await expect(second.plane.propose(create("dddddddd"))).rejects.toMatchObject({
    code: "server_error",
  });
});

test("formation: a master joins a group although another has a different list of peers", async () => {
  const bind = () => bindServer({ host: "127.0.0.1", port: 0, credentials: byToken });
  const [one, two, three] = [await bind(), await bind(), await bind()];
  const { plane } = await open("m1", one, new Map([["m1", one.address]]));
  await plane.readBarrier();
  const token = await add(plane, "m3");
  const stop = new AbortController();
  const nowhere = new Map([
    ["m1", "127.0.0.1:1"],
    ["m2", two.address],
  ]);
  const lost = open("m2", two, nowhere, { signal: stop.signal });
  const all = new Map([
    ["m1", one.address],
    ["m2", two.address],
    ["m3", three.address],
  ]);
  const joined = await open("m3", three, all, { joinToken: () => token });
  await joined.plane.readBarrier();
  expect(joined.plane.status().members.map(({ name }) => name)).toEqual(["m1", "m3"]);
  stop.abort();
  await expect(lost).rejects.toMatchObject({ code: "cancelled" });
});

// holds: wal-other-cluster, masters-wiped-disk
test("data directory: another master's, and one whose log is gone, are refused", async () => {
  const bind = () => bindServer({ host: "127.0.0.1", port: 0, credentials: byToken });
  const server = await bind();
  const only = await open("m1", server, new Map([["m1", server.address]]));
  await only.plane.propose(create("aaaaaaaa"));
  await close(only);
  opened = [];
  const asOther = await bind();
  const peers = new Map([["m2", asOther.address]]);
  await expect(open("m2", asOther, peers, { directoryName: "m1" })).rejects.toMatchObject({
    code: "conflict",
  });
  await rm(join(folder, "m1", "wal"), { recursive: true });
  const again = await bind();
  await expect(open("m1", again, new Map([["m1", again.address]]))).rejects.toMatchObject({
    code: "server_error",
    message: expect.stringMatching(/Empty the directory/),
  });
});

test("data directory: without its identity it is refused, and nothing is written to it", async () => {
  const bind = () => bindServer({ host: "127.0.0.1", port: 0, credentials: byToken });
  const server = await bind();
  const only = await open("m1", server, new Map([["m1", server.address]]));
  await close(only);
  opened = [];
  const identity = join(folder, "m1", "identity.json");
  await rm(identity);
  for (let start = 0; start < 2; start++) {
    const again = await bind();
    await expect(open("m1", again, new Map([["m1", again.address]]))).rejects.toMatchObject({
      code: "server_error",
      message: expect.stringContaining("its identity.json is gone"),
    });
    expect(await readdir(join(folder, "m1"))).not.toContain("identity.json");
  }
});

test("formation: masters of a new group with different lists of peers say so and end", async () => {
  const bind = () => bindServer({ host: "127.0.0.1", port: 0, credentials: byToken });
  const [one, two] = [await bind(), await bind()];
  const both = new Map([
    ["m1", one.address],
    ["m2", two.address],
  ]);
  const stop = new AbortController();
  const { signal } = stop;
  const starting = [
    open("m1", one, both, { signal }),
    open("m2", two, new Map([...both, ["m3", "127.0.0.1:1"]]), { signal }),
  ];
  await expect(Promise.any(starting.map(rejection))).resolves.toMatch(/--peers/);
  stop.abort();
  await Promise.allSettled(starting);
});

/** The message with which the promise rejects. */
async function rejection(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => Promise.reject(new Error("it resolved")),
    (error: Error) => error.message,
  );
}

test("TLS: masters agree, and the Raft thread shows a renewed certificate", async () => {
  const authority = await createAuthority();
  const certificate = async (name: string): Promise<TlsIdentity> => {
    const { privateKey, csr } = await requestCertificate();
    const signed = await signNode(authority, csr, { role: "master", name }, 3_600_000);
    return new TlsIdentity({ authority: authority.certificate, certificate: signed, privateKey });
  };
  const [one, two] = [await certificate("m1"), await certificate("m2")];
  const [first, second] = await openGroup([one, two].map((tls) => ({ clusterToken: "", tls })));
  if (!first || !second) throw new Error("two were to start");
  await first.plane.propose(create("aaaaaaaa"));
  await second.plane.readBarrier();
  expect(second.plane.state.keys.size).toBe(1);
  const peer = new Peer(second.server.address, { clusterToken: "", tls: one });
  const { port } = await peer.unary(locateMethod, {}, { deadlineMs: 10_000 });
  peer.close();
  const shown = async (): Promise<string> => {
    const socket = connectTls({ port, ...one.secureContext, rejectUnauthorized: false });
    await once(socket, "secureConnect");
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const before = await shown();
  two.update((await certificate("m2")).material);
  await eventually(async () => (await shown()) !== before, "the new one is shown");
  await second.plane.propose(create("bbbbbbbb"));
});

test("counts: those of the Raft thread and of the main thread are reported as one", async () => {
  const [only] = await openGroup(1);
  if (!only) throw new Error("one was to start");
  await eventually(async () => {
    const { clusterVersion, supportedVersion } = only.plane.status();
    return clusterVersion === supportedVersion;
  }, "the version is raised, which is a proposal too");
  const before = only.plane.counts().proposals;
  for (let at = 0; at < 5; at++) await only.plane.propose(create(`cccccc${10 + at}`));
  const { content, index } = await only.plane.takeBackup(false);
  for await (const _ of content);
  const { proposals, proposalsFailed, elections, snapshotsTaken, appends } = only.plane.counts();
  // The first of the two snapshots is the new group's.
  expect([proposals - before, proposalsFailed, elections, snapshotsTaken]).toEqual([5, 0, 1, 2]);
  expect(appends.counts.reduce((sum, count) => sum + count)).toBeGreaterThanOrEqual(5);
  expect(appends.sumSeconds).toBeGreaterThan(0);
  expect(index).toBe(only.plane.status().snapshotIndex);
});
