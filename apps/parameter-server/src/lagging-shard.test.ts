// holds: ps-lagging-shard

import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import {
  checkpointShards,
  openShards,
  restoreShards,
  type ShardSetAccess,
  shardStatuses,
} from "@heddle/parameters/shards/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import {
  type ServerProcess,
  startServer,
  stopServers,
} from "@heddle/parameters/testing/server-processes";
import type { ConsistencyModel } from "@heddle/training/consistency/update-clock";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { closeClients, jobOn, joinJob } from "./testing/training-job.ts";

// A worker is lost after one shard has its part and before the other has it.

let servers: readonly ServerProcess[] = [];
beforeAll(async () => {
  servers = await Promise.all([startServer(), startServer()]);
});
afterEach(closeClients);
afterAll(stopServers);

const terms = { weight: 1, learningRate: 1 };
/** A shard's part is larger than what the sockets of a stopped server can hold. */
const SIZE = 6_000_000;
const zeros = () => ({ weight: new Float32Array(SIZE) });
const ones = () => ({ weight: new Float32Array(SIZE).fill(1) });

const versionsOf = async (job: ShardSetAccess) =>
  (await shardStatuses(job)).map(({ version }) => version);

/** Two workers, the second of which pushes its part to the first shard alone. */
async function jobWithLostPart(consistency: ConsistencyModel) {
  const addresses = servers.map(({ address }) => address);
  const parameters = [{ name: "weight", shape: [SIZE], type: "f32" }] as const;
  const job = jobOn(addresses, { workers: 2, consistency, parameters });
  await openShards(job);
  const first = await joinJob(job, 0);
  const lost = await joinJob(job, 1);
  await first.initialize(zeros());
  for (const client of [first, lost]) await client.push(ones(), terms);
  if (consistency.kind === "bsp") await first.push(ones(), terms);
  const before = await versionsOf(job);
  const [one, other] = servers;
  process.kill(other?.pid ?? 0, "SIGSTOP");
  try {
    const broken = lost.push(ones(), terms);
    broken.catch(() => undefined);
    const onlyFirst = { ...job, spec: { ...job.spec, servers: [one?.address ?? ""] } };
    await eventually(async () => (await versionsOf(onlyFirst))[0] === (before[0] ?? 0) + 1);
    await lost.close();
    await expect(broken).rejects.toThrow();
  } finally {
    process.kill(other?.pid ?? 0, "SIGCONT");
  }
  const [ahead = 0, behind = 0] = await versionsOf(job);
  expect(ahead).toBe(behind + 1);
  return { job, first, version: ahead };
}

/** The next attempt, restored from the checkpoint. */
async function restored(spec: ShardSetSpec, name: string): Promise<ShardSetAccess> {
  const again = jobOn(spec.servers, { ...spec, attempt: 2 });
  await restoreShards(again, [{ name, pieces: 2, servers: spec.servers }]);
  return again;
}

test.each([{ kind: "asp" }, { kind: "ssp", staleness: 1 }] as const)(
  "checkpoint: a shard that lacks a lost worker's part writes what it has ($kind)",
  async (consistency) => {
    const { job, version } = await jobWithLostPart(consistency);
    const checkpoint = await checkpointShards(job, "lagging");
    expect(checkpoint).toMatchObject({ version, pieces: 2, uncopied: [] });
    expect(await versionsOf(await restored(job.spec, "lagging"))).toEqual([version, version]);
  },
);

test("checkpoint: under bsp it fails with the reason, until the worker has left", async () => {
  const { job, first, version } = await jobWithLostPart({ kind: "bsp" });
  await expect(checkpointShards(job, "early")).rejects.toMatchObject({
    code: "conflict",
    message: expect.stringMatching(/shard 1 has version 1 .* of 2: a worker was lost/),
  });
  // It is refused once, after two seconds, and then tried again.
  const later = held(checkpointShards(job, "later"));
  await delay(2_500);
  const replacement = await joinJob(job, 1, { incarnation: 1 });
  await replacement.leave();
  await first.pull(zeros());
  expect(await later).toMatchObject({ version });
  expect(await versionsOf(await restored(job.spec, "later"))).toEqual([version, version]);
});
