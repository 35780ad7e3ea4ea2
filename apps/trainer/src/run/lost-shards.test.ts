// holds: ps-lost-server, train-lost-shards

import { setTimeout as delay } from "node:timers/promises";
import { TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TrainingCluster } from "../../test/training-cluster.ts";

// Trainers whose parameter server does not return. Their timeout is half a minute, so the tests
// run side by side, each with a server of its own.

let cluster: TrainingCluster;
let config: object;

beforeAll(() => {
  cluster = new TrainingCluster();
  const data = cluster.writeText();
  // Longer than the test.
  config = { ...TINY_MODEL, data, total_steps: 100_000, local_steps: 10 };
});
afterAll(() => cluster.close());

test.concurrent("lost server: while rank 0 waits for others' last parts it is a lost node", async () => {
  const server = await cluster.startServer("s0");
  const asp = { consistency: "asp", total_steps: 20, local_steps: 1 };
  const options = { tasks: 2, nodes: ["a", "b"] };
  const first = cluster.job("weave", { ...config, ...asp }, [server], options).start();
  // The other never arrives, so that rank 0 only polls the progress of all.
  await first.reachesRound(20);
  await delay(1_000);
  expect(first.child.exitCode).toBeNull();
  await server.kill();
  expect(await first.ended()).toBe(75);
});

test.concurrent("opening shards: a parameter server that is down for a moment is retried", async () => {
  const server = await cluster.startServer("s2");
  const steps = { total_steps: 20, warm_start_steps: 0 };
  const job = cluster.job("weave", { ...config, ...steps }, [server]);
  await server.kill();
  const trainer = job.start();
  await delay(6_000);
  expect(trainer.child.exitCode).toBeNull();
  await cluster.startServer("s2", Number(server.address.split(":")[1]));
  await trainer.succeeded();
});

test.concurrent("opening shards: a parameter server that stays down is a lost node", async () => {
  const server = await cluster.startServer("s3");
  await server.kill();
  expect(await cluster.job("weave", config, [server]).start().ended()).toBe(75);
});

/** The second attempt of a job, whose only checkpoint is on a server that has ended. */
async function withoutHolder(name: string) {
  const server = await cluster.startServer(name);
  const other = await cluster.startServer(`${name}-other`);
  const job = cluster.job("weave", config, [server]);
  const first = job.start();
  await first.reachesRound(5);
  const resumeFrom = await first.checkpoint();
  await first.kill();
  await server.kill();
  const ready = [other.address];
  const places = { parameterServers: ready, readyServers: ready, lostServers: [server.address] };
  return { server, second: job.start({ attempt: 2, resumeFrom, ...places }), resumeFrom };
}

// holds: train-awaited-server
test.concurrent("only checkpoint: an unreachable server that has it is awaited", async () => {
  const { server, second, resumeFrom } = await withoutHolder("s4");
  await delay(5_000);
  expect(second.child.exitCode).toBeNull();
  await cluster.startServer("s4", Number(server.address.split(":")[1]));
  await second.reachesRound(10);
  expect(second.output).toContain(`resumed from checkpoint ${resumeFrom}`);
});

// holds: train-awaited-server
test.concurrent("only checkpoint: a server that stays down with it is a lost node", async () => {
  const { second, resumeFrom } = await withoutHolder("s5");
  expect(await second.ended()).toBe(75);
  expect(second.output).toMatch(/the task failed \(shard_unavailable\): no checkpoint of job/);
  expect(second.output).toContain(`${resumeFrom}: a parameter server has been unreachable`);
});

test.concurrent("lost server: all tasks of a node end with the same code, not as failures", async () => {
  const server = await cluster.startServer("s1");
  const tasks = cluster.job("weave", config, [server], { tasks: 2, nodes: ["n", "n"] }).startAll();
  await tasks[0]?.reachesRound(5);
  await server.kill();
  expect(await Promise.all(tasks.map((task) => task.ended()))).toEqual([75, 75]);
  expect(tasks[1]?.output).toMatch(
    /the task failed \(shard_unavailable\): shard 0 at .* has been unreachable/,
  );
});
