// holds: consensus-transport, sec-tls-member

import { once } from "node:events";
import { connect } from "node:net";
import { connect as connectTls } from "node:tls";
import {
  type CertificateAuthority,
  createAuthority,
  requestCertificate,
  signNode,
} from "@heddle/pki/certificate-authority";
import type { NodeRole } from "@heddle/pki/node-name";
import { TlsIdentity, validityOf } from "@heddle/pki/tls-identity";
import { createMessage, type Message } from "@heddle/raft/core/message";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { afterEach, beforeAll, expect, test, vi } from "vitest";
import type { Member } from "../ports.ts";
import { type Hello, helloFrame, readHello } from "./hello.ts";
import { RaftTransport } from "./raft-transport.ts";
import { SocketFrames } from "./socket-frames.ts";

const PATIENT = { timeout: 100_000 };
const HOUR_MS = 3_600_000;
const members: readonly Member[] = [1, 2].map((id) => ({
  id,
  name: `m${id}`,
  address: `m${id}`,
  nonce: "",
}));

interface Node {
  readonly transport: RaftTransport;
  readonly port: number;
  readonly received: Message[];
  /** What its dialling was warned of. */
  readonly warnings: string[];
  /** How many members it was connected to, each time that this changed. */
  readonly turns: number[];
}

const ports = new Map<string, number>();
let nodes: Node[] = [];
let ours: CertificateAuthority;
let theirs: CertificateAuthority;

beforeAll(async () => {
  [ours, theirs] = await Promise.all([createAuthority(), createAuthority()]);
});
afterEach(() => {
  vi.restoreAllMocks();
  for (const { transport } of nodes) transport.close();
  nodes = [];
  ports.clear();
});

async function certificate(
  name: string,
  authority = ours,
  role: NodeRole = "master",
  lifetimeMs = HOUR_MS,
): Promise<TlsIdentity> {
  const { privateKey, csr } = await requestCertificate();
  const signed = await signNode(authority, csr, { role, name }, lifetimeMs);
  return new TlsIdentity({ authority: authority.certificate, certificate: signed, privateKey });
}

async function open(id: number, credentials: NodeCredentials): Promise<Node> {
  const warnings: string[] = [];
  const turns: number[] = [];
  const silent = () => undefined;
  const warn = (fields: object) => warnings.push((fields as { error: string }).error);
  const transport = new RaftTransport({
    identity: { version: 1, name: `m${id}`, nonce: "", cluster: "c", id, incarnation: 1 },
    credentials,
    addresses: new Map(),
    log: { info: silent, error: silent, warn },
    locate: async (address) => ({ host: "127.0.0.1", port: ports.get(address) ?? 1 }),
    findMember: async () => undefined,
    onConnections: () => turns.push(transport.connected.length),
  });
  const received: Message[] = [];
  const port = await transport.listen(
    { host: "127.0.0.1", port: 0 },
    {
      receive: (messages) => received.push(...messages),
      receiveSnapshot: async (_message, _meta, chunks) => {
        for await (const _ of chunks);
      },
    },
  );
  ports.set(`m${id}`, port);
  const node = { transport, port, received, warnings, turns };
  nodes.push(node);
  return node;
}

const withTls = (tls: TlsIdentity): NodeCredentials => ({ clusterToken: "", tls });

function acquaint(...all: Node[]): void {
  for (const [at, { transport }] of all.entries()) {
    transport.setMembers(members.filter(({ id }) => id !== at + 1));
  }
}

function connected(one: Node, two: Node): Promise<void> {
  return expect
    .poll(() => one.transport.connected.includes(2) && two.transport.connected.includes(1), PATIENT)
    .toBe(true);
}

const hello: Hello = {
  format: 1,
  cluster: "c",
  from: 1,
  to: 2,
  incarnation: 1,
  purpose: "messages",
};

/** Says hello with a certificate as member 1 does, without checking the other side's. */
async function greet(port: number, tls: TlsIdentity): Promise<Hello> {
  const socket = connectTls({ port, ...tls.secureContext, rejectUnauthorized: false });
  socket.write(helloFrame(hello));
  try {
    const next = await new SocketFrames(socket).next();
    return readHello(next.done ? undefined : next.value);
  } finally {
    socket.destroy();
  }
}

test("Raft TLS: masters with certificates of one CA carry messages and snapshots", async () => {
  const one = await open(1, withTls(await certificate("m1")));
  const two = await open(2, withTls(await certificate("m2")));
  acquaint(one, two);
  await connected(one, two);
  one.transport.send(2, [createMessage({ type: "MsgHeartbeat", to: 2, from: 1, term: 5 })]);
  two.transport.send(1, [createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 5 })]);
  await expect.poll(() => one.received.length + two.received.length === 2, PATIENT).toBe(true);
  const confState = {
    voters: [1, 2],
    learners: [],
    votersOutgoing: [],
    learnersNext: [],
    autoLeave: false,
  };
  const meta = { index: 9, term: 3, cluster: "c", detail: { confState, members, lastId: 2 } };
  const message = createMessage({ type: "MsgSnap", to: 2, from: 1, term: 3 });
  const chunks = async function* () {
    for (let at = 0; at < 5; at++) yield Buffer.alloc(1024 * 1024, "s");
  };
  await one.transport.sendSnapshot(2, { message, meta, chunks: chunks() });
});

test("TLS: a server accepts only masters of its cluster; plain TCP gets nothing", async () => {
  const two = await open(2, withTls(await certificate("m2")));
  two.transport.setMembers(members.filter(({ id }) => id === 1));
  expect(await greet(two.port, await certificate("m1"))).toMatchObject({
    from: 2,
    to: 1,
  });
  await expect(greet(two.port, await certificate("m1", ours, "worker"))).rejects.toMatchObject({
    code: "permission_denied",
    message: expect.stringContaining("m1 is a worker; this is for a master"),
  });
  await expect(greet(two.port, await certificate("m1", theirs))).rejects.toThrow();
  await expect(greet(two.port, await certificate("m1", ours, "master", -1_000))).rejects.toThrow();
  const bare = { authority: ours.certificate, certificate: "", privateKey: "" };
  await expect(greet(two.port, new TlsIdentity(bare))).rejects.toThrow();
  const socket = connect(two.port, "127.0.0.1");
  const received: Buffer[] = [];
  socket.on("data", (data: Buffer) => received.push(data));
  socket.on("error", () => undefined);
  socket.write(helloFrame(hello));
  await once(socket, "close");
  // An alert of TLS at most; a hello names the cluster.
  expect(Buffer.concat(received).toString("latin1")).not.toContain("cluster");
  expect(two.received).toEqual([]);
  expect(two.transport.connected).toEqual([]);
});

test("TLS: a caller sends nothing to a server that is no master of its cluster", async () => {
  const cases: readonly (readonly [NodeCredentials, RegExp])[] = [
    [withTls(await certificate("m2", ours, "worker")), /m2 is a worker/],
    [withTls(await certificate("m1", theirs)), /no TLS connection/],
    [{ clusterToken: "a-token-for-tests-only" }, /no TLS connection|wrong version/],
  ];
  for (const [credentials, reason] of cases) {
    const one = await open(1, withTls(await certificate("m1")));
    const two = await open(2, credentials);
    one.transport.setMembers(members.filter(({ id }) => id === 2));
    await expect.poll(() => one.warnings.length > 0, PATIENT).toBe(true);
    expect(one.warnings[0]).toMatch(reason);
    expect(two.received).toEqual([]);
    expect(two.transport.connected).toEqual([]);
    for (const { transport } of nodes.splice(0)) transport.close();
  }
});

test("TLS: a renewed certificate serves new connections; open ones continue", async () => {
  const [own, other] = [await certificate("m1"), await certificate("m2")];
  const one = await open(1, withTls(own));
  const two = await open(2, withTls(other));
  acquaint(one, two);
  await connected(one, two);
  const shown = async () => {
    const socket = connectTls({ port: two.port, ...own.secureContext, rejectUnauthorized: false });
    await once(socket, "secureConnect");
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const first = await shown();
  other.update((await certificate("m2")).material);
  expect(await shown()).not.toBe(first);
  one.transport.send(2, [createMessage({ type: "MsgHeartbeat", to: 2, from: 1, term: 5 })]);
  await expect.poll(() => two.received.length === 1, PATIENT).toBe(true);
});

test("TLS: a master's certificate authorizes that master alone, in both directions", async () => {
  const two = await open(2, withTls(await certificate("m2")));
  two.transport.setMembers(members.filter(({ id }) => id === 1));
  await expect(greet(two.port, await certificate("m3"))).rejects.toMatchObject({
    code: "permission_denied",
    message: "m3 does not speak for member 1, which is m1",
  });
  two.transport.close();
  const one = await open(1, withTls(await certificate("m1")));
  const other = await open(2, withTls(await certificate("m3")));
  acquaint(one, other);
  await expect.poll(() => one.warnings.length > 0, PATIENT).toBe(true);
  expect(one.warnings[0]).toContain("m3 does not speak for member 2, which is m2");
  expect(one.transport.connected).toEqual([]);
});

test("Raft TLS: no connection outlives its certificates; the next one opens by itself", async () => {
  const [own, other] = [await certificate("m1"), await certificate("m2")];
  const one = await open(1, withTls(own));
  const two = await open(2, withTls(other));
  // Half a second before their end, however long it takes to connect.
  const { untilMs } = validityOf(own.material.certificate);
  const clock = vi.spyOn(Date, "now").mockReturnValue(untilMs - 500);
  acquaint(one, two);
  // `onConnections` is called when a connection opens and when it ends.
  await expect.poll(() => one.turns.length >= 4, PATIENT).toBe(true);
  clock.mockRestore();
  await connected(one, two);
});

test("Raft TLS: without a certificate there must be a token", () => {
  const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const identity = {
    version: 1 as const,
    name: "m1",
    nonce: "",
    cluster: "c",
    id: 1,
    incarnation: 1,
  };
  const open = () =>
    new RaftTransport({
      identity,
      credentials: { clusterToken: "" },
      addresses: new Map(),
      log: silent,
      locate: async () => ({ host: "127.0.0.1", port: 1 }),
      findMember: async () => undefined,
    });
  expect(open).toThrow("need a cluster token");
});
