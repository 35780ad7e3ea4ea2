// holds: consensus-transport, sec-member-keys

import { connect } from "node:net";
import type { Log } from "@heddle/observability/logger";
import { createMessage, type Message } from "@heddle/raft/core/message";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { proveToListener, type TokenHolder } from "@heddle/rpc/token/handshake";
import type { SnapshotMeta } from "@heddle/storage/snapshot-store";
import { afterEach, expect, test } from "vitest";
import { type MemberKey, newMemberKey } from "../member/member-key.ts";
import type { Member } from "../ports.ts";
import { FRAME_KINDS, frameOf } from "./frames.ts";
import { type Hello, helloFrame, readHello, signedHello } from "./hello.ts";
import { RaftTransport } from "./raft-transport.ts";
import { SocketFrames } from "./socket-frames.ts";

const PATIENT = { timeout: 100_000 };
const clusterToken = "a-token-for-tests-only";
const byToken = { clusterToken };
const named = (name: string) => ({ clusterToken, node: { role: "master" as const, name } });
const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
const keys = new Map([1, 2, 3, 4, 7].map((id) => [id, newMemberKey()] as const));
const keyOf = (id: number) => keys.get(id) as MemberKey;
const memberOf = (id: number): Member => ({
  id,
  name: `m${id}`,
  address: `m${id}`,
  nonce: keyOf(id).nonce,
});
const members: readonly Member[] = [1, 2, 4].map(memberOf);
const identityOf = (id: number, own: { nonce: string; key?: string } = keyOf(id)) => ({
  version: 1 as const,
  name: `m${id}`,
  ...own,
  cluster: "c",
  id,
  incarnation: 1,
});
const confState = {
  voters: [1, 2, 4],
  learners: [],
  votersOutgoing: [],
  learnersNext: [],
  autoLeave: false,
};

interface Node {
  readonly transport: RaftTransport;
  readonly port: number;
  readonly received: Message[];
  readonly snapshots: { meta: SnapshotMeta; bytes: Buffer }[];
}

const ports = new Map<string, number>();
/** Every address that `locate` was called with. */
const resolved: string[] = [];
let nodes: Node[] = [];

afterEach(() => {
  for (const { transport } of nodes) transport.close();
  nodes = [];
  ports.clear();
  resolved.length = 0;
});

async function open(
  id: number,
  credentials: NodeCredentials = byToken,
  log: Log = silent,
): Promise<Node> {
  const identity = identityOf(id);
  const transport = new RaftTransport({
    identity,
    credentials: { ...named(`m${id}`), ...credentials },
    addresses: new Map(),
    log,
    locate: async (address) => {
      resolved.push(address);
      return { host: "127.0.0.1", port: ports.get(address) ?? 1 };
    },
    findMember: async (unknown) => (unknown === 7 ? memberOf(7) : undefined),
  });
  const received: Message[] = [];
  const snapshots: Node["snapshots"] = [];
  const port = await transport.listen(
    { host: "127.0.0.1", port: 0 },
    {
      receive: (messages) => received.push(...messages),
      receiveSnapshot: async (_message, meta, chunks) => {
        const parts: Uint8Array[] = [];
        for await (const chunk of chunks) parts.push(chunk);
        snapshots.push({ meta, bytes: Buffer.concat(parts) });
      },
    },
  );
  ports.set(`m${id}`, port);
  transport.setMembers(members.filter((member) => member.id !== id));
  const node = { transport, port, received, snapshots };
  nodes.push(node);
  return node;
}

test("Raft transport: one connection for each pair carries messages both ways", async () => {
  const [one, two] = [await open(1), await open(2)];
  await expect
    .poll(() => one.transport.connected.includes(2) && two.transport.connected.includes(1), PATIENT)
    .toBe(true);
  one.transport.send(2, [createMessage({ type: "MsgHeartbeat", to: 2, from: 1, term: 5 })]);
  two.transport.send(1, [createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 5 })]);
  await expect.poll(() => one.received.length + two.received.length === 2, PATIENT).toBe(true);
  expect(one.received[0]).toMatchObject({ type: "MsgHeartbeatResp", from: 2, term: 5 });
  expect(two.received[0]).toMatchObject({ type: "MsgHeartbeat", from: 1, term: 5 });
  expect(one.transport.send(4, [createMessage({ type: "MsgHeartbeat", to: 4 })])).toBe(false);
});

test("Raft transport: a snapshot of many pieces arrives whole, or is refused", async () => {
  const [one, two] = [await open(1), await open(2)];
  const message = createMessage({ type: "MsgSnap", to: 2, from: 1, term: 3 });
  const detail = { confState, members, lastId: 4 };
  const meta = { index: 9, term: 3, cluster: "c", detail };
  const piece = Buffer.alloc(1024 * 1024, "s");
  const chunks = async function* () {
    for (let at = 0; at < 20; at++) yield piece;
  };
  await one.transport.sendSnapshot(2, { message, meta, chunks: chunks() });
  expect(two.snapshots).toHaveLength(1);
  expect(two.snapshots[0]?.meta).toEqual(meta);
  expect(two.snapshots[0]?.bytes.length).toBe(20 * piece.length);
  const broken = async function* () {
    yield piece;
    throw new Error("the disk is gone");
  };
  const sent = one.transport.sendSnapshot(2, { message, meta, chunks: broken() });
  await expect(sent).rejects.toThrow("the disk is gone");
  expect(two.snapshots).toHaveLength(1);
});

test("Raft transport: unreadable bytes end the connection with a logged reason", async () => {
  const errors: object[] = [];
  const error = (fields: object, message: string) => errors.push({ ...fields, message });
  const { port } = await open(4, byToken, { ...silent, error });
  const socket = connect(port, "127.0.0.1");
  const { session } = await proveToListener(socket, named("m1"));
  const frames = new SocketFrames(socket);
  const hello = { format: 1 as const, cluster: "c", from: 1, to: 4, incarnation: 7 };
  const signed = signedHello({ ...hello, purpose: "messages" }, session, identityOf(1));
  socket.write(helloFrame(signed));
  await frames.next();
  socket.resume();
  socket.write(frameOf(FRAME_KINDS.messages, Buffer.from([255, 255, 255])));
  await expect.poll(() => socket.readableEnded).toBe(true);
  const message = "cannot take what another master sent; its connection is cut";
  expect(errors).toEqual([{ member: 1, error: expect.stringMatching(/./), message }]);
});

/** A member's answer to a connection that begins with that frame. */
async function greet(
  port: number,
  frame: (session: string) => Buffer,
  shown: TokenHolder = named("m1"),
): Promise<Hello> {
  const socket = connect(port, "127.0.0.1");
  const { session } = await proveToListener(socket, shown);
  socket.write(frame(session));
  const next = await new SocketFrames(socket).next();
  return readHello(next.done ? undefined : next.value);
}

test("transport: unknown members, removed members and older processes get the reason", async () => {
  const { port } = await open(4);
  const hello: Hello = {
    format: 1,
    cluster: "c",
    from: 1,
    to: 4,
    incarnation: 7,
    purpose: "messages",
  };
  const ask = (frame: Buffer, shown: TokenHolder = named("m1")) => greet(port, () => frame, shown);
  const another = { ...named("m1"), clusterToken: "another" };
  await expect(ask(helloFrame(hello), another)).rejects.toThrow(/cluster token/);
  const worker = { clusterToken, node: { role: "worker", name: "m1" } } as const;
  await expect(ask(helloFrame(hello), worker)).rejects.toThrow(/did not prove that it is a master/);
  await expect(ask(helloFrame(hello), named("m2"))).rejects.toThrow(
    /m2 does not speak for member 1/,
  );
  await expect(ask(helloFrame({ ...hello, cluster: "d" }))).rejects.toThrow(/the cluster d/);
  await expect(ask(helloFrame({ ...hello, to: 2 }))).rejects.toThrow(/this is member 4/);
  await expect(ask(helloFrame({ ...hello, from: 3 }))).rejects.toThrow(/member 3 was removed/);
  const signed = (more: Partial<Hello> = {}) =>
    greet(port, (session) =>
      helloFrame(signedHello({ ...hello, ...more }, session, identityOf(1))),
    );
  expect(await signed()).toMatchObject({ from: 4, to: 1 });
  await expect(signed({ incarnation: 6 })).rejects.toThrow(/newer process/);
  await expect(ask(frameOf(FRAME_KINDS.hello, Buffer.from("{")))).rejects.toThrow(/not a master/);
  await expect(ask(frameOf(FRAME_KINDS.ping, Buffer.from("{}")))).rejects.toThrow(/this version/);
});

// holds: consensus-removed-address
test("Raft transport: does not reconnect to a member removed while it was unreachable", async () => {
  const { transport } = await open(1);
  const times = (address: string) => resolved.filter((each) => each === address).length;
  await expect.poll(() => times("m2") > 1 && times("m4") > 1, PATIENT).toBe(true);
  transport.setMembers(members.filter(({ id }) => id === 4));
  // A try that has begun is none after.
  const [gone, stays] = [times("m2"), times("m4")];
  await expect.poll(() => times("m4") > stays + 3, PATIENT).toBe(true);
  expect(times("m2")).toBe(gone);
});

test("the cluster token alone: no member's name and no new member's id opens the port", async () => {
  const { port } = await open(4);
  const hello = { format: 1 as const, cluster: "c", to: 4, incarnation: 7 };
  const as = (from: number, key: MemberKey | { nonce: string }) => (session: string) =>
    helloFrame(
      signedHello({ ...hello, from, purpose: "messages" }, session, identityOf(from, key)),
    );
  const { nonce } = keyOf(1);
  const noKey = /does not have the key of member 1 \(m1\)/;
  await expect(greet(port, as(1, { nonce }))).rejects.toThrow(noKey);
  await expect(greet(port, as(1, newMemberKey()))).rejects.toThrow(noKey);
  const replayed = as(1, keyOf(1))("the session of another connection");
  await expect(greet(port, () => replayed)).rejects.toThrow(noKey);
  await expect(greet(port, as(99, newMemberKey()), named("m99"))).rejects.toThrow(
    /the group has no member 99 of the name m99/,
  );
  await expect(greet(port, as(7, newMemberKey()), named("m7"))).rejects.toThrow(
    /does not have the key of member 7/,
  );
  expect(await greet(port, as(7, keyOf(7)), named("m7"))).toMatchObject({ from: 4, to: 7 });
});

test("Raft transport: a member of a build without keys has the token and its name", async () => {
  const node = await open(4);
  node.transport.setMembers([{ ...memberOf(1), nonce: "0123456789abcdef0123456789abcdef" }]);
  const hello = { format: 1 as const, cluster: "c", from: 1, to: 4, incarnation: 7 };
  const frame = helloFrame({ ...hello, purpose: "messages" });
  expect(await greet(node.port, () => frame)).toMatchObject({ from: 4, to: 1 });
});

test("Raft transport: cuts off a member that uses another's id, except when forwarding", async () => {
  const errors: object[] = [];
  const error = (fields: object) => errors.push(fields);
  const [one, two] = [await open(1), await open(2, byToken, { ...silent, error })];
  await expect.poll(() => one.transport.connected.includes(2), PATIENT).toBe(true);
  one.transport.send(2, [createMessage({ type: "MsgReadIndex", to: 2, from: 4 })]);
  await expect.poll(() => two.received.length === 1, PATIENT).toBe(true);
  one.transport.send(2, [createMessage({ type: "MsgApp", to: 2, from: 4, term: 9 })]);
  await expect.poll(() => errors.length > 0, PATIENT).toBe(true);
  const what = "member 1 has sent MsgApp in the name of member 4";
  expect(errors).toEqual([{ member: 1, error: what }]);
  expect(two.received).toHaveLength(1);
});
