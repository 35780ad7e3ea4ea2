// holds: sec-cluster-token

import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Peer } from "../peer.ts";
import { loadMethod } from "../proto.ts";
import { bindServer, closeServer } from "../server.ts";
import { checkDialler, proveToListener } from "./handshake.ts";

const clusterToken = "the token of this test, which must stay secret";
const master = { clusterToken, node: { role: "master", name: "m" } } as const;
const worker = { clusterToken, node: { role: "worker", name: "w" } } as const;
const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** A relay in front of a port that records every byte, by direction. */
async function tapped(port: number): Promise<{ port: number; seen: [Buffer[], Buffer[]] }> {
  const seen: [Buffer[], Buffer[]] = [[], []];
  return { port: await listen((near) => relay(near, connect(port, "127.0.0.1"), seen)), seen };
}

function relay(near: Socket, far: Socket, seen: [Buffer[], Buffer[]]): void {
  near.on("data", (chunk: Buffer) => seen[0].push(chunk)).pipe(far);
  far.on("data", (chunk: Buffer) => seen[1].push(chunk)).pipe(near);
  for (const socket of [near, far]) socket.on("error", () => undefined);
}

async function listen(onSocket: (socket: Socket) => void): Promise<number> {
  const server = createServer(onSocket).listen(0, "127.0.0.1");
  await once(server, "listening");
  closing.push(() => server.close());
  return (server.address() as { port: number }).port;
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  closing.push(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

test("handshake: a whole gRPC call never contains the cluster token", async () => {
  const { server, address } = await bindServer({ host: "127.0.0.1", port: 0, credentials: worker });
  closing.push(() => closeServer(server, 0));
  const { port, seen } = await tapped(Number(address.split(":")[1]));
  const peer = new Peer(`127.0.0.1:${port}`, master, "worker");
  closing.push(() => peer.close());
  // There is no service: the call reached gRPC, which reports that.
  const call = peer.unary(loadMethod, {}, { deadlineMs: 5_000 });
  await expect(call).rejects.toThrow(/does not serve this yet/);
  const wire = Buffer.concat(seen.flat()).toString("latin1");
  expect(wire).toContain("heddle-auth 1");
  expect(wire).not.toContain(clusterToken);
  expect(wire).not.toContain(Buffer.from(clusterToken).toString("base64"));
  expect(wire).not.toContain("Bearer");
});

test("handshake: a listener without the token is detected before any proof is sent", async () => {
  const said: string[] = [];
  const port = await listen((socket) => {
    socket.on("data", (chunk: Buffer) => {
      said.push(chunk.toString());
      socket.write(`${"0".repeat(64)} worker/w ${"0".repeat(64)}\n`);
    });
  });
  const proved = proveToListener(await dial(port), master);
  await expect(proved).rejects.toMatchObject({ code: "invalid_api_key" });
  expect(said).toHaveLength(1);
});

test("handshake: a recorded one does not open a second connection", async () => {
  const outcomes: Promise<unknown>[] = [];
  const port = await listen((socket) => outcomes.push(checkDialler(socket, worker)));
  const tap = await tapped(port);
  const { session, ...listener } = await proveToListener(await dial(tap.port), master);
  expect(listener).toEqual(worker.node);
  expect(await outcomes[0]).toEqual({ ...master.node, session });
  const replay = await dial(port);
  replay.write(Buffer.concat(tap.seen[0]));
  await expect.poll(() => outcomes.length).toBe(2);
  await expect(outcomes[1]).rejects.toMatchObject({ code: "invalid_api_key" });
});

test("handshake: neither side's proof is valid as the other's", async () => {
  const port = await listen((socket) => {
    // Echoes the handshake back as its own.
    checkDialler(socket, worker).catch(() => socket.destroy());
  });
  const socket = await dial(port);
  socket.write(`heddle-auth 1 ${"a".repeat(64)} master/m\n`);
  const [chunk] = (await once(socket, "data")) as [Buffer];
  const proof = chunk.toString().trim().split(" ")[2] ?? "";
  expect(proof).toMatch(/^[0-9a-f]{64}$/);
  socket.write(`${proof}\n`);
  const [answer] = (await once(socket, "data")) as [Buffer];
  expect(answer.toString()).toMatch(/^refused .*no valid cluster token/);
});

test("handshake: a long line, another protocol and an invalid name are refused", async () => {
  const refused: Promise<unknown>[] = [];
  const port = await listen((socket) => refused.push(checkDialler(socket, worker)));
  for (const line of [
    `heddle-auth 1 ${"a".repeat(64)} root/m\n`,
    `heddle-auth 2 ${"a".repeat(64)} master/m\n`,
    "GET / HTTP/1.1\r\n\r\n",
    "x".repeat(4_096),
  ]) {
    const socket = await dial(port);
    socket.write(line);
    await expect.poll(() => refused.length).toBe(1);
    await expect(refused.pop()).rejects.toMatchObject({ code: "invalid_value" });
    socket.destroy();
  }
});
