// holds: ps-bad-input, ps-node-group, ps-lost-server

import { randomUUID } from "node:crypto";
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DataConnection } from "@heddle/parameters/data-plane/data-connection";
import { joinNodeGroup, type NodeClient } from "@heddle/parameters/node-group/join-node-group";
import { openShards, shardStatuses } from "@heddle/parameters/shards/shard-set";
import { startServer, stopServers } from "@heddle/parameters/testing/server-processes";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { jobOn, tensors } from "./testing/training-job.ts";

let servers: readonly string[] = [];
const clients: NodeClient[] = [];

beforeAll(async () => {
  servers = (await Promise.all([startServer(), startServer()])).map(({ address }) => address);
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
afterAll(stopServers);

/** Two nodes of two tasks each, in the order of ranks. */
async function twoNodes() {
  const job = jobOn(servers, { workers: 2 });
  await openShards(job);
  const tasks = [0, 1].flatMap((rank) => {
    const socketPath = join(tmpdir(), `heddle-test-${randomUUID().slice(0, 8)}.sock`);
    return [0, 1].map((member) =>
      joinNodeGroup({ ...job, rank, host: "127.0.0.1" }, { member, members: 2, socketPath }),
    );
  });
  clients.push(...(await Promise.all(tasks)));
  await clients[0]?.servers?.initialize(tensors(() => 0));
  return job;
}

test("node group: sends one part, and the update is the mean over all tasks", async () => {
  const job = await twoNodes();
  const values = await Promise.all(
    clients.map(async (client, task) => {
      const own = tensors(() => 9);
      await client.pull(own);
      expect(own).toEqual(tensors(() => 0));
      for (let update = 1; update <= 3; update++) {
        await client.push(
          tensors((at) => (at % 5) + task),
          { weight: task + 1, learningRate: 1 },
        );
        expect(await client.pull(own)).toBe(update);
      }
      return own;
    }),
  );
  // The weights 1, 2, 3, 4 of the tasks 0, 1, 2, 3 give a mean of 2.
  const mean = tensors((at) => -3 * ((at % 5) + 2));
  for (const own of values) {
    for (const [i, value] of own.weight.entries())
      expect(value).toBeCloseTo(mean.weight[i] ?? 0, 4);
  }
  for (const status of await shardStatuses(job)) expect(status.pushes).toBe(6);
});

test("node group: a part that is not finite fails all tasks of its node only", async () => {
  await twoNodes();
  const bad = (task: number) => (task === 1 ? Number.NaN : 1);
  const results = await Promise.allSettled(
    clients.slice(0, 2).map(async (client, task) => {
      const own = tensors(() => 0);
      await client.pull(own);
      await client.push(
        tensors(() => bad(task)),
        { weight: 1, learningRate: 1 },
      );
      await client.pull(own);
    }),
  );
  for (const result of results) {
    expect(result).toMatchObject({ status: "rejected", reason: { code: "invalid_value" } });
  }
  const own = tensors(() => 9);
  await Promise.all(
    clients.slice(2).map((client) => client.pull(client === clients[2] ? own : tensors(() => 0))),
  );
  expect(own).toEqual(tensors(() => 0));
});

test("node group: all tasks learn that a server is lost, also later ones", async () => {
  const server = await startServer();
  const job = jobOn([server.address]);
  await openShards(job);
  const socketPath = join(tmpdir(), `heddle-test-${randomUUID().slice(0, 8)}.sock`);
  const options = { ...job, rank: 0, host: "127.0.0.1", timeoutMs: 300 };
  const members = [0, 1, 2].map((member) =>
    joinNodeGroup(options, { member, members: 3, socketPath }),
  );
  const [leader, waiting, late] = await Promise.all(members);
  await leader?.servers?.initialize(tensors(() => 0));
  const own = () => tensors(() => 0);
  await Promise.all([leader, waiting, late].map((client) => client?.pull(own())));
  await server.kill();
  const lost = { code: "shard_unavailable" };
  const asked = expect(waiting?.pull(own())).rejects.toMatchObject(lost);
  await expect(leader?.pull(own())).rejects.toMatchObject(lost);
  await asked;
  const closed = leader?.close();
  await expect(late?.pull(own())).rejects.toMatchObject(lost);
  await closed;
  await Promise.all([waiting, late].map((client) => client?.close()));
});

test("node group: a leading task that closes ends its node's connections", async () => {
  const job = jobOn(servers);
  await openShards(job);
  const socketPath = join(tmpdir(), `heddle-test-${randomUUID().slice(0, 8)}.sock`);
  const options = { ...job, rank: 0, host: "127.0.0.1" };
  const members = [0, 1].map((member) =>
    joinNodeGroup(options, { member, members: 2, socketPath }),
  );
  const [leader, other] = await Promise.all(members);
  clients.push(other!);
  await leader?.servers?.initialize(tensors(() => 0));
  const asked = expect(other?.pull(tensors(() => 0))).rejects.toMatchObject({
    code: "unavailable",
  });
  await leader?.close();
  const later = DataConnection.open(`unix:${socketPath}`, job.spec.jobToken, job.signal);
  await expect(later).rejects.toThrow("cannot connect");
  await asked;
  await expect(leader?.servers?.pull(tensors(() => 0))).rejects.toThrow();
});

test("node group: a task with another model of equal length is refused", async () => {
  const job = jobOn(servers);
  await openShards(job);
  const socketPath = join(tmpdir(), `heddle-test-${randomUUID().slice(0, 8)}.sock`);
  const place = { rank: 0, host: "127.0.0.1" };
  const parameters = job.spec.parameters.map((each) =>
    each.name === "bias" ? { ...each, shape: [8] } : each,
  );
  const other = { ...job, spec: { ...job.spec, parameters } };
  clients.push(
    await joinNodeGroup({ ...job, ...place }, { member: 0, members: 2, socketPath }),
    await joinNodeGroup({ ...other, ...place }, { member: 1, members: 2, socketPath }),
  );
  const bias = new Float32Array(8);
  await expect(clients[1]?.pull({ ...tensors(() => 0), bias })).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringContaining("all workers of a job must have the same model"),
  });
  await expect(clients[1]?.pull(tensors(() => 0))).rejects.toThrow(
    /the tensor bias has 7 elements/,
  );
});

test("node group: a task that cannot open its own socket says so at once", async () => {
  const job = jobOn(servers);
  await openShards(job);
  const socketPath = join(tmpdir(), `heddle-test-${randomUUID().slice(0, 8)}.sock`);
  const options = { ...job, rank: 0, host: "127.0.0.1" };
  clients.push(await joinNodeGroup(options, { member: 0, members: 2, socketPath }));
  mkdirSync(`${socketPath}.1`);
  const joined = joinNodeGroup(options, { member: 1, members: 2, socketPath });
  await expect(joined).rejects.toMatchObject({ code: "ERR_FS_EISDIR" });
});
