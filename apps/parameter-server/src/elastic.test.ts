// holds: ps-stragglers

import type { LostWorker } from "@heddle/contracts/generated/heddle/v1/LostWorker";
import type { LostWorkerReply } from "@heddle/contracts/generated/heddle/v1/LostWorkerReply";
import {
  checkpointShards,
  listCheckpoints,
  openShards,
  restoreShards,
  type ShardSetAccess,
  shardStatuses,
} from "@heddle/parameters/shards/shard-set";
import {
  asMaster,
  type ServerProcess,
  startServer,
  stopServers,
} from "@heddle/parameters/testing/server-processes";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

// Workers that are lost and return during a job.

let servers: readonly ServerProcess[] = [];
beforeAll(async () => {
  servers = await Promise.all([startServer(), startServer()]);
});
afterEach(closeClients);
afterAll(stopServers);

const releaseMethod = method<LostWorker, LostWorker, LostWorkerReply, LostWorkerReply>(
  parameterShardsService,
  "ReleaseWorker",
);

/** As the leader does when a task has certainly ended. */
async function release({ spec }: ShardSetAccess, rank: number, incarnation: number) {
  const { jobId, attempt } = spec;
  for (const address of new Set(spec.servers)) {
    const peer = new Peer(address, asMaster, "parameter-server");
    await peer.unary(releaseMethod, { jobId, attempt, rank, incarnation }, { deadlineMs: 5_000 });
    peer.close();
  }
}

const terms = { weight: 1, learningRate: 1 };
const zeros = () => tensors(() => 0);

const versionsOf = async (job: ShardSetAccess) =>
  (await shardStatuses(job)).map(({ version }) => version);

async function openJob(fragments: number) {
  const addresses = servers.map(({ address }) => address);
  const all = Array.from({ length: fragments }, () => addresses).flat();
  const job = jobOn(all, { workers: 3, fragments });
  await openShards(job);
  return job;
}

test("release: an update waits for a lost worker until then, and omits its part", async () => {
  const job = await openJob(1);
  const [a, b, lost] = await Promise.all([0, 1, 2].map((rank) => joinJob(job, rank)));
  await a?.initialize(zeros());
  await Promise.all(
    [a, b, lost].map((client) =>
      client?.push(
        tensors(() => 3),
        terms,
      ),
    ),
  );
  const into = zeros();
  await a?.pull(into);
  expect(into.bias[0]).toBe(-3);
  // The third is lost before its second part: the others' pulls wait for it.
  await lost?.close();
  await a?.push(
    tensors(() => 1),
    terms,
  );
  await b?.push(
    tensors(() => 5),
    terms,
  );
  const pulled = a?.pull(into);
  expect((await shardStatuses(job)).map(({ version }) => version)).toEqual([1, 1]);
  await release(job, 2, 0);
  await pulled;
  expect(into.bias[0]).toBe(-6);
  for (const status of await shardStatuses(job)) {
    expect(status).toMatchObject({ version: 2, workers: 2, departures: 1 });
  }
});

test("replacement: joins at the current version; a late report is ignored", async () => {
  const job = await openJob(1);
  const [a, b, lost] = await Promise.all([0, 1, 2].map((rank) => joinJob(job, rank)));
  await a?.initialize(zeros());
  const into = zeros();
  await lost?.close();
  await release(job, 2, 0);
  for (const client of [a, b])
    await client?.push(
      tensors(() => 1),
      terms,
    );
  await a?.pull(into);
  const replacement = await joinJob(job, 2, { incarnation: 1 });
  expect(replacement.clock).toBe(1);
  await release(job, 2, 0);
  expect(await shardStatuses(job)).toMatchObject([{ workers: 3 }, { workers: 3 }]);
  await replacement.pull(into);
  expect(into.gain[5]).toBe(-1);
  for (const client of [a, b])
    await client?.push(
      tensors(() => 0),
      terms,
    );
  await replacement.push(
    tensors(() => 6),
    terms,
  );
  await a?.pull(into);
  expect(into.gain[5]).toBe(-3);
});

test("replacement: a part that the lost task pushed is not added again", async () => {
  const job = await openJob(1);
  const [a, b, lost] = await Promise.all([0, 1, 2].map((rank) => joinJob(job, rank)));
  await a?.initialize(zeros());
  await a?.push(
    tensors(() => 1),
    terms,
  );
  await b?.push(
    tensors(() => 1),
    terms,
  );
  await lost?.push(
    tensors(() => 1),
    terms,
  );
  await lost?.close();
  // It is replaced before its loss is reported.
  const replacement = await joinJob(job, 2, { incarnation: 1 });
  expect(replacement.clock).toBe(1);
  const into = zeros();
  await replacement.pull(into);
  expect(into.bias[0]).toBe(-1);
  expect(await shardStatuses(job)).toMatchObject([
    { version: 1, pushes: 3, departures: 0 },
    { version: 1, pushes: 3, departures: 0 },
  ]);
});

test("fragments: have their own versions, and each moves its share of the model", async () => {
  const job = await openJob(2);
  const all = await Promise.all(
    [0, 1, 2].flatMap((rank) => [0, 1].map((fragment) => joinJob(job, rank, { fragment }))),
  );
  const [first, second, ...others] = all;
  for (const client of [first, second]) await client?.initialize(zeros());
  const into = zeros();
  const ofFirst = [first, others[0], others[2]];
  for (const client of ofFirst)
    await client?.push(
      tensors(() => 2),
      terms,
    );
  await first?.pull(into);
  // The first fragment is the first half of all elements, within the first tensor.
  expect(into.weight[0]).toBe(-2);
  expect(into.gain[300]).toBe(0);
  expect(await versionsOf(job)).toEqual([1, 1, 0, 0]);
  const whole = 37 * 531 + 7 + 301;
  const { bytesPushed, bytesPulled } = first?.traffic ?? { bytesPushed: 0, bytesPulled: 0 };
  expect(bytesPushed).toBe(bytesPulled);
  // Slabs are padded to 256 elements.
  expect(Math.abs(bytesPushed / 4 - whole / 2)).toBeLessThan(2 * 256);
});

test("fragments: a checkpoint holds each at its version, and is on both servers", async () => {
  const job = await openJob(2);
  const clients = await Promise.all([0, 1, 2].map((rank) => joinJob(job, rank, { fragment: 1 })));
  const first = await joinJob(job, 0, { fragment: 0 });
  for (const client of [first, ...clients.slice(0, 1)]) await client.initialize(zeros());
  for (const client of clients) {
    await client.push(
      tensors(() => 2),
      terms,
    );
  }
  await clients[0]?.pull(zeros());
  const { spec } = job;
  const addresses = servers.map(({ address }) => address);
  expect(await checkpointShards(job, "c")).toMatchObject({ version: 1, pieces: 4, uncopied: [] });
  const found = await listCheckpoints(job);
  expect([...(found.get("c") ?? [])].sort()).toEqual([...addresses].sort());
  const [one = "", unreachable] = [addresses[0], "127.0.0.1:9"];
  const listOn = (each: readonly string[]) => listCheckpoints(jobOn(each, { jobId: spec.jobId }));
  expect((await listOn([one, unreachable])).get("c")).toEqual([one]);
  await expect(listOn([unreachable])).rejects.toMatchObject({ code: "unavailable" });
  const again = jobOn(spec.servers, { ...spec, attempt: 2 });
  const there = { name: "c", pieces: 4, servers: addresses };
  await expect(restoreShards(again, [])).rejects.toMatchObject({ code: "not_found" });
  const { used, refused } = await restoreShards(again, [{ ...there, name: "absent" }, there]);
  expect([used.name, refused]).toEqual(["c", [expect.stringMatching(/^absent: /)]]);
  expect(await versionsOf(again)).toEqual([0, 0, 1, 1]);
});
