import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@heddle/base/testing/until";
import type { LostWorker } from "@heddle/contracts/generated/heddle/v1/LostWorker";
import type { LostWorkerReply } from "@heddle/contracts/generated/heddle/v1/LostWorkerReply";
import { shardStatuses } from "@heddle/parameters/shards/shard-set";
import { asMaster, type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import { TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TrainingCluster, type TrainingJob } from "../../test/training-cluster.ts";

// Trainers that are killed while the others of their job continue: real processes.

let cluster: TrainingCluster;
let servers: readonly ServerProcess[] = [];
beforeAll(async () => {
  cluster = new TrainingCluster();
  servers = [await cluster.startServer("s0")];
});
afterAll(() => cluster.close());

const releaseMethod = method<LostWorker, LostWorker, LostWorkerReply, LostWorkerReply>(
  parameterShardsService,
  "ReleaseWorker",
);

/** As the leader does when a task has certainly ended. */
async function release(job: TrainingJob, rank: number, incarnation: number): Promise<void> {
  const { spec } = job.access();
  const peer = new Peer(servers[0]?.address ?? "", asMaster, "parameter-server");
  const lost = { jobId: spec.jobId, attempt: 1, rank, incarnation };
  await peer.unary(releaseMethod, lost, { deadlineMs: 10_000 });
  peer.close();
}

/** Longer than any test observes it, unless the test sets another length. */
function weave(tasks: number, more: object = {}): TrainingJob {
  const data = cluster.writeText();
  const steps = { total_steps: 1_000_000, local_steps: 10, fragments: 2, overlap_steps: 3 };
  const config = { ...TINY_MODEL, data, ...steps, ...more };
  return cluster.job("weave", config, servers, { tasks, failureTolerance: 1 });
}

// holds: train-elastic
test("lost task: the others continue, and it is replaced, also rank 0", async () => {
  const job = weave(3);
  const [first, , third] = job.startAll();
  if (!first || !third) throw new Error("three tasks were started");
  await first.reachesRound(3);
  await third.kill();
  await release(job, 2, 0);
  await first.reachesRound((first.metrics().at(-1)?.round ?? 0) + 5);
  const [without] = await shardStatuses(job.access());
  expect(without).toMatchObject({ workers: 2, departures: 1 });
  const replacement = job.start({ rank: 2, incarnation: 1 });
  const joined = () => replacement.output.includes("takes the place of a lost task after round");
  await until("it has joined", joined);
  await first.reachesRound((first.metrics().at(-1)?.round ?? 0) + 5);
  const [whole] = await shardStatuses(job.access());
  expect(whole).toMatchObject({ workers: 3, departures: 1, refusedInvalid: 0 });
  // Now rank 0, whose duties pass to its replacement: it neither opens nor restores shards.
  await first.kill();
  const before = first.metrics().at(-1)?.round ?? 0;
  const reported = first.metrics().length;
  const again = job.start({ rank: 0, incarnation: 1 });
  await again.reachesRound(before + 5);
  expect(await again.checkpoint()).toMatch(/^a1-r/);
  // It appends to the same file, from the round of the lost task.
  const rounds = again.metrics().map(({ round = 0 }) => round);
  const own = rounds.slice(reported);
  expect(own).toEqual(own.map((_, i) => (own[0] ?? 0) + i));
  expect(own[0]).toBeGreaterThanOrEqual(before);
  expect(own[0]).toBeLessThanOrEqual(before + 2);
});

// holds: train-elastic
test("lost ppo task: replaced in the middle of an update's minibatches", async () => {
  const config = { total_timesteps: 1_000_000_000, num_steps: 32, seed: 3 };
  const job = cluster.job("ppo", config, servers, { tasks: 2, failureTolerance: 1 });
  const [first, second] = job.startAll();
  await first?.reachesRound(3);
  await second?.kill();
  const replacement = job.start({ rank: 1, incarnation: 1 });
  await first?.reachesRound((first.metrics().at(-1)?.round ?? 0) + 5);
  expect(replacement.output).toContain("takes the place of a lost task after round");
  // Each update has the parts of both again: as many as rank 0 has pushed, 16 a round.
  const [status] = await shardStatuses(job.access());
  expect(status).toMatchObject({ workers: 2, departures: 0, refusedInvalid: 0 });
  expect(status?.pushes).toBeLessThanOrEqual(2 * ((status?.version ?? 0) + 1));
  expect(status?.pushes).toBeGreaterThanOrEqual(2 * (status?.version ?? 0));
});

// holds: train-elastic
test("lost task: the job succeeds without it; a late one learns that it has ended", async () => {
  const job = weave(2, { total_steps: 60 });
  const first = job.start();
  // The second never arrives.
  const { spec, ...access } = job.access();
  const shards = { ...access, spec: { ...spec, servers: [...spec.servers, ...spec.servers] } };
  for (let open = 0; open < 2; await delay(20)) {
    const statuses = await shardStatuses(shards).catch(() => []);
    open = statuses.filter(({ ready }) => ready).length;
  }
  await release(job, 1, 0);
  await first.succeeded();
  expect(existsSync(first.artifact("model.gguf"))).toBe(true);
  const late = job.start({ rank: 1, incarnation: 1 });
  await late.succeeded();
  expect(late.output).toContain("the job is done: rank 0 has ended it");
});
