// holds: life-leader-knowledge

import type { sendUnaryData } from "@grpc/grpc-js";
import type { ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { parameterShardsService } from "@heddle/rpc/proto";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { expect, onTestFinished, test } from "vitest";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { ShardRelease } from "./shard-release.ts";

const clusterToken = "the token of these tests";
const credentials = { clusterToken };
const asServer = { clusterToken, node: { role: "parameter-server", name: "s" } } as const;
const nowMs = 100_000_000;
const log = { info() {}, warn() {}, error() {} };

/** A parameter server that only records what is to be freed. */
async function startServer(closed: string[]): Promise<string> {
  const { server, address } = await bindServer({
    host: "127.0.0.1",
    port: 0,
    credentials: asServer,
  });
  server.addService(parameterShardsService, {
    close: ({ request }: { request: ShardId__Output }, reply: sendUnaryData<object>) => {
      const { jobId, attempt, shard } = request;
      closed.push(`${jobId}/${attempt}/${shard}`);
      reply(null, {});
    },
  });
  onTestFinished(() => closeServer(server, 0));
  return address;
}

test("shard release: a new leader frees what ended shortly before its term", async () => {
  const closed: string[] = [];
  const address = await startServer(closed);
  const job = (id: string, state: JobRecord["state"], endedAtMs?: number) =>
    [id, { id, state, attempt: 2, shards: ["p", "p"], endedAtMs } as unknown as JobRecord] as const;
  const jobs = new Map([
    job("killed", "cancelled", nowMs - 1_000),
    job("waits", "pending"),
    job("long-ago", "failed", nowMs - 86_400_000),
    job("runs", "running"),
  ]);
  const shardsByServer = new Map([["p", new Map([["runs", 2]])]]);
  let term = 7;
  const control = {
    state: { jobs, specs: new Map(), servers: new Map([["p", { state: "ready", address }]]) },
    jobs: { shardsByServer },
    group: { status: () => ({ term }) },
  } as unknown as ControlPlane;
  const clock = { wallMs: () => nowMs, monotonicMs: () => nowMs };
  const release = new ShardRelease({ control, credentials, log, clock, onFreed: () => {} });
  const freed = async () => {
    await release.step();
    return closed.splice(0).sort();
  };
  expect(await freed()).toEqual(["killed/2/0", "killed/2/1", "waits/2/0", "waits/2/1"]);
  expect(await freed()).toEqual([]);
  // While it leads it sees for itself what has ended.
  shardsByServer.clear();
  jobs.delete("killed");
  jobs.delete("waits");
  expect(await freed()).toEqual(["runs/2/0", "runs/2/1"]);
  expect(await freed()).toEqual([]);
  // Another master led in between.
  term = 9;
  expect(await freed()).toEqual(["runs/2/0", "runs/2/1"]);
});
