// holds: bound-soak-nodes

import { handlesOf, InspectedHeap } from "@heddle/base/testing/inspected-heap";
import { closeShards, openShards } from "@heddle/parameters/shards/shard-set";
import { startServer, stopServers } from "@heddle/parameters/testing/server-processes";
import { afterAll, expect, test, vi } from "vitest";
import { closeClients, jobOn, joinJob, tensors } from "./testing/training-job.ts";

/** Jobs whose shards are opened, used and closed; `.ci/nightly` runs more. */
const JOBS = Number(process.env["HEDDLE_SOAK_SHARDS"] ?? 40);
const SAMPLES = 4;
/** The latest attempts of 4,096 jobs are remembered. */
const MAX_GROWTH_BYTES = 2 * 2 ** 20 + JOBS * 1_024;
const MAX_MORE_HANDLES = 8;
const ones = tensors(() => 1);

afterAll(stopServers);

test("soak: jobs that are closed leave nothing in their parameter server", async () => {
  const heap = await InspectedHeap.make();
  vi.stubEnv("NODE_OPTIONS", heap.nodeOptions);
  const server = await startServer();
  vi.unstubAllEnvs();
  const heaps: number[] = [];
  const handles: { descriptors: number; threads: number }[] = [];
  for (let at = 1; at <= JOBS; at++) {
    const job = jobOn([server.address]);
    await openShards(job);
    const client = await joinJob(job, 0);
    await client.initialize(tensors(() => at));
    await client.push(ones, { weight: 1, learningRate: 1 });
    await client.pull(tensors(() => 0));
    await closeClients();
    await closeShards(job);
    if (at % Math.ceil(JOBS / SAMPLES) !== 0) continue;
    heaps.push(await heap.bytes());
    handles.push(handlesOf(server.pid));
  }
  const reported = heaps.map((bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`).join(", ");
  if (process.env["HEDDLE_SOAK_SHARDS"])
    console.log(`heap after each part of ${JOBS} jobs: ${reported}; ${JSON.stringify(handles)}`);
  expect(heaps.at(-1)! - heaps[1]!, reported).toBeLessThan(MAX_GROWTH_BYTES);
  for (const kind of ["descriptors", "threads"] as const) {
    const more = handles.at(-1)![kind] - handles[1]![kind];
    expect(more, `${kind}: ${JSON.stringify(handles)}`).toBeLessThanOrEqual(MAX_MORE_HANDLES);
  }
}, 36_000_000);
