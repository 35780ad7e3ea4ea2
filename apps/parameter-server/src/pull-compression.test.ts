// holds: ps-pulls

import type { DataPath } from "@heddle/parameters/data-plane/data-route";
import { partBytes } from "@heddle/parameters/shards/compression";
import { shardLayouts } from "@heddle/parameters/shards/shard-layout";
import { checkpointShards, openShards, restoreShards } from "@heddle/parameters/shards/shard-set";
import { startServer, stopServers } from "@heddle/parameters/testing/server-processes";
import { afterAll, afterEach, beforeAll, expect, it, test } from "vitest";
import { closeClients, jobOn, joinJob, SHAPES, tensors } from "./testing/training-job.ts";

// Real server processes and sockets; the workers are clients in this process.

let servers: readonly string[] = [];

beforeAll(async () => {
  servers = (await Promise.all([startServer(), startServer()])).map(({ address }) => address);
});
afterEach(closeClients);
afterAll(stopServers);

const terms = { weight: 1, learningRate: 1 };
const layouts = shardLayouts(SHAPES, 2);
const elements = layouts.reduce((sum, layout) => sum + layout.elements, 0);
const whole = elements * 4;
const changes = layouts.reduce((sum, layout) => sum + partBytes("int8", layout.elements), 0);

/** The part of one update: elements of many sizes, which int8 cannot represent exactly. */
const part = (update: number) => tensors((at) => Math.sin(at * update) * 10 ** -(at % 5));

type Tensors = ReturnType<typeof tensors>;
const greatestDifference = (left: Tensors, right: Tensors) =>
  Math.max(
    ...(["weight", "bias", "gain"] as const).flatMap((name) =>
      [...left[name]].map((value, i) => Math.abs(value - (right[name][i] ?? Number.NaN))),
    ),
  );

it.each<DataPath>(["unix", "tcp", "grpc"])(
  "%s: changes arrive as int8, and their error never accumulates",
  async (path) => {
    const job = jobOn(servers, { pullCompression: "int8" });
    await openShards(job);
    const client = await joinJob(job, 0, { paths: [path] });
    await client.initialize(tensors(Math.cos));
    const [held, exact] = [tensors(() => 0), tensors(Math.cos)];
    await client.pull(held);
    expect(held).toEqual(exact);
    expect(client.traffic.bytesPulled).toBe(whole);
    for (let update = 1; update <= 40; update++) {
      const moved = part(update);
      for (const name of ["weight", "bias", "gain"] as const) {
        for (const [i, value] of moved[name].entries()) exact[name][i]! -= value;
      }
      await client.push(moved, terms);
      expect(await client.pull(held)).toBe(update);
      // A block's greatest change is below 1.1, so that its step is below 1.1 / 127.
      expect(greatestDifference(held, exact), `update ${update}`).toBeLessThan(1.1 / 127);
    }
    expect(client.traffic.bytesPulled).toBe(whole + 40 * changes);
    expect(changes).toBeLessThan(whole / 3.9);
  },
);

test("missed update: a worker pulls the whole, and has what the others have", async () => {
  const job = jobOn(servers, { pullCompression: "int8" });
  await openShards(job);
  const [first, second] = [await joinJob(job, 0), await joinJob(job, 0)];
  await first.initialize(tensors(Math.cos));
  const [held, late] = [tensors(() => 0), tensors(() => 0)];
  await first.pull(held);
  await second.pull(late);
  for (const update of [1, 2, 3]) {
    await first.push(part(update), terms);
    await first.pull(held);
  }
  expect(await second.pull(late)).toBe(3);
  expect(late).toEqual(held);
  expect(second.traffic.bytesPulled).toBe(2 * whole);
  await second.pull(late);
  expect(second.traffic.bytesPulled, "nothing has changed").toBe(2 * whole);
  expect(late).toEqual(held);
});

test("checkpoint: has exact parameters, which are published after a restore", async () => {
  const job = jobOn(servers, { pullCompression: "int8" });
  await openShards(job);
  const client = await joinJob(job, 0);
  await client.initialize(tensors(() => 0));
  const held = tensors(() => 0);
  await client.pull(held);
  await client.push(part(1), terms);
  await client.pull(held);
  const checkpoint = await checkpointShards(job, "step-1");
  await closeClients();
  const next = jobOn(servers, { ...job.spec, attempt: 2 });
  await restoreShards(next, [checkpoint]);
  const again = await joinJob(next, 0);
  const restored = tensors(() => 0);
  expect(await again.pull(restored)).toBe(1);
  expect(greatestDifference(restored, held)).toBeGreaterThan(0);
  const exact = part(1);
  for (const name of ["weight", "bias", "gain"] as const) {
    expect(restored[name]).toEqual(exact[name].map((value) => 0 - value));
  }
});

test("ssp: int8 pulls are refused, since workers skip versions", async () => {
  const consistency = { kind: "ssp", staleness: 2 } as const;
  const job = jobOn(servers, { pullCompression: "int8", consistency });
  await expect(openShards(job)).rejects.toThrow(
    /pull_compression int8 needs the consistency model bsp, not ssp/,
  );
});
