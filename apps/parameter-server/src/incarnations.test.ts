// holds: ops-restore-incarnation

import { nextClusterId } from "@heddle/base/cluster-id";
import type {
  ForgetJobCheckpoints,
  ForgetJobCheckpoints__Output,
} from "@heddle/contracts/generated/heddle/v1/ForgetJobCheckpoints";
import type {
  ForgetJobReply,
  ForgetJobReply__Output,
} from "@heddle/contracts/generated/heddle/v1/ForgetJobReply";
import { openShards, shardStatuses } from "@heddle/parameters/shards/shard-set";
import {
  asMaster,
  credentials,
  type ServerProcess,
  startServer,
  stopServers,
} from "@heddle/parameters/testing/server-processes";
import { issueTicket } from "@heddle/rpc/job-ticket";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import { afterAll, afterEach, expect, test } from "vitest";
import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

// A restored cluster numbers the attempts of its jobs from the backup on, so numbers repeat.

const formed = "0123456789abcdef0123456789abcdef";
const restored = nextClusterId(formed, 20, "ab");
const message = expect.stringMatching(/incarnation/);
/** As for a lost server: a task with this error has not failed. */
const refused = { code: "shard_unavailable", message };

const forgetMethod = method<
  ForgetJobCheckpoints,
  ForgetJobCheckpoints__Output,
  ForgetJobReply,
  ForgetJobReply__Output
>(parameterShardsService, "ForgetJob");

afterEach(closeClients);
afterAll(stopServers);

function attemptOf(cluster: string, jobId: string, { address }: ServerProcess, attempt = 1) {
  const job = jobOn([address], { jobId, attempt });
  const issuedUnixMs = Date.now();
  const times = { issuedUnixMs, expiresUnixMs: issuedUnixMs + 3_600_000 };
  const claims = { jobId, attempt, servers: [address], cluster, ...times };
  return { ...job, credentials: { ticket: issueTicket(credentials, claims) } };
}

test("incarnations: a restored cluster's attempts are new, earlier ones refused", async () => {
  const server = await startServer();
  const before = attemptOf(formed, "job-a", server, 3);
  await openShards(before);
  const old = await joinJob(before, 0);
  await old.initialize(tensors(() => 5));
  // The lower number is of the later cluster, and finds none of the other's shards.
  const after = attemptOf(restored, "job-a", server, 2);
  await openShards(after);
  const [status] = await shardStatuses(after);
  expect(status).toMatchObject({ version: 0, ready: false });
  await expect(openShards(before)).rejects.toMatchObject(refused);
  await expect(shardStatuses(before)).rejects.toMatchObject(refused);
  await expect(old.pull(tensors(() => 0))).rejects.toThrow();
  const trainer = await joinJob(after, 0);
  await trainer.initialize(tensors(() => 1));
  const into = tensors(() => 0);
  await trainer.pull(into);
  expect(into.weight[0]).toBe(1);
});

test("incarnations: a killed parameter server remembers its cluster", async () => {
  const first = await startServer();
  await openShards(attemptOf(restored, "job-a", first));
  await first.kill();
  const second = await startServer(first.dataDirectory);
  await expect(openShards(attemptOf(formed, "job-a", second, 9))).rejects.toMatchObject(refused);
  const tied = nextClusterId(formed, 20, "cd");
  await expect(openShards(attemptOf(tied, "job-a", second, 9))).rejects.toMatchObject({
    message: expect.stringMatching(/the same moment/),
  });
  await openShards(attemptOf(nextClusterId(restored, 30, "ef"), "job-a", second));
});

test("incarnations: earlier masters cannot delete a checkpoint", async () => {
  const server = await startServer();
  await openShards(attemptOf(restored, "job-a", server));
  const forgetAs = async (cluster: string) => {
    const peer = new Peer(server.address, { ...asMaster, cluster }, "parameter-server");
    try {
      await peer.unary(forgetMethod, { jobId: "job-a" }, { deadlineMs: 30_000 });
    } finally {
      peer.close();
    }
  };
  await expect(forgetAs(formed)).rejects.toMatchObject({ code: "precondition_failed", message });
  await forgetAs(restored);
});
