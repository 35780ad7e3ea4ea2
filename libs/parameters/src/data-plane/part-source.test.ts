import { ownSocketPath } from "@heddle/base/temporary-socket";
import { Peer } from "@heddle/rpc/peer";
import { afterEach, expect, test } from "vitest";
import { takeMethod } from "../shards/shard-methods.ts";
import { DataConnection } from "./data-connection.ts";
import { PartSource } from "./part-source.ts";

const TOKEN = new Uint8Array(32).fill(3);
const never = new AbortController().signal;
const opened: { close(): unknown }[] = [];

afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
});

/** The source of attempt 2's parts, with its fourth push, for two shards. */
async function source() {
  const one = await PartSource.start({
    attempt: 2,
    jobToken: TOKEN,
    isEncrypted: false,
    host: "127.0.0.1",
    socketPath: ownSocketPath("data"),
    paths: ["unix", "tcp", "grpc"],
  });
  opened.push(one);
  const parts = [0, 1].map((shard) => {
    const pieces = [Uint8Array.of(shard, 7)];
    return [shard, { bytes: 2, pieces }] as const;
  });
  one.keep(4, new Map(parts));
  return one;
}

/** The answer of a data connection to the address. */
async function ask(address: string, shard: number, clock: number): Promise<number[]> {
  const connection = await DataConnection.open(address, TOKEN, never);
  opened.push(connection);
  const place = new Uint8Array(8);
  const got: number[] = [];
  const sink = {
    begin: () => undefined,
    space: () => place,
    filled: (bytes: number) => void got.push(...place.subarray(0, bytes)),
  };
  const { version } = await connection.request({ shard, clock }, sink, never);
  return [version, ...got];
}

/** The same over gRPC, for an attempt. */
async function take(address: string, shard: number, clock: number, attempt: number) {
  const node = { role: "parameter-server", name: "ps" } as const;
  const credentials = { clusterToken: Buffer.from(TOKEN).toString("hex"), node };
  const peer = new Peer(address.slice("grpc:".length), credentials, "worker");
  opened.push(peer);
  const request = { id: { jobId: "j", attempt, shard }, clock };
  const got: number[] = [];
  for await (const { version, data } of peer.serverStream(takeMethod, request, never)) {
    got.push(version, ...data);
  }
  return got;
}

test("source: each shard gets its part of the latest push, by every path", async () => {
  const { addresses, certificate } = await source();
  expect(addresses.map((address) => address.split(":")[0])).toEqual(["unix", "tcp", "grpc"]);
  expect(certificate).toBe("");
  for (const address of addresses.slice(0, 2)) {
    expect([await ask(address, 0, 4), await ask(address, 1, 4)]).toEqual([
      [4, 0, 7],
      [4, 1, 7],
    ]);
  }
  expect(await take(addresses[2] ?? "", 1, 4, 2)).toEqual([4, 1, 7]);
});

test("source: another push's part, or another shard's, is not found", async () => {
  const one = await source();
  const [unix = "", , grpc = ""] = one.addresses;
  const none = { code: "not_found", message: expect.stringMatching(/latest push is 4/) };
  for (const clock of [3, 5]) {
    await expect(ask(unix, 0, clock)).rejects.toMatchObject(none);
    await expect(take(grpc, 0, clock, 2)).rejects.toMatchObject(none);
  }
  await expect(ask(unix, 2, 4)).rejects.toMatchObject(none);
  one.release();
  await expect(ask(unix, 0, 4)).rejects.toMatchObject(none);
});

test("source: a part is given to its own attempt only", async () => {
  const { addresses } = await source();
  for (const attempt of [1, 3]) {
    await expect(take(addresses[2] ?? "", 0, 4, attempt)).rejects.toMatchObject({
      code: "precondition_failed",
    });
  }
});

test("source: a peer with another token is closed and counted", async () => {
  const one = await source();
  const [unix = ""] = one.addresses;
  const foreign = await DataConnection.open(unix, new Uint8Array(32), never);
  opened.push(foreign);
  await expect.poll(() => one.unauthenticated).toBe(1);
  await expect.poll(() => foreign.open).toBe(false);
});

test("source: a closed one ends its connections and takes no other", async () => {
  const one = await source();
  const [unix = "", tcp = ""] = one.addresses;
  const connection = await DataConnection.open(tcp, TOKEN, never);
  opened.push(connection);
  await one.close();
  await expect.poll(() => connection.open).toBe(false);
  for (const address of [unix, tcp]) await expect(ask(address, 0, 4)).rejects.toThrow(/connect/);
});
