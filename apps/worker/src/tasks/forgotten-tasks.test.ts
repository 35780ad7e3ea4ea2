// holds: bound-soak-nodes

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { handlesOf, InspectedHeap } from "@heddle/base/testing/inspected-heap";
import { until } from "@heddle/base/testing/until";
import { expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../test/test-leader.ts";

/** Tasks that end and are forgotten; `.ci/nightly` runs more. */
const TASKS = Number(process.env["HEDDLE_SOAK_TASKS"] ?? 96);
const BATCH = 16;
const SAMPLES = 4;
const MAX_GROWTH_BYTES = 2 * 2 ** 20;
/** Connections and pipes that come and go. */
const MAX_MORE_DESCRIPTORS = 8;

test("soak: tasks that are forgotten leave nothing in their worker", async (context) => {
  const leader = await newLeader(context);
  const heap = await InspectedHeap.make();
  const worker = await leader.startWorker({}, { NODE_OPTIONS: heap.nodeOptions });
  const session = leader.open(1, 3_600_000);
  const batch = async (from: number) => {
    const ids = Array.from({ length: BATCH }, (_, at) => taskId(0, 1, `job_${from + at}`));
    await Promise.all(
      ids.map(async (task) => {
        const environment = { [`V_${task.jobId}`]: `${task.jobId}`.padEnd(4_096, "x") };
        await session.start({ ...shell("echo $HEDDLE_JOB_ID; exit 3"), environment }, task);
        const { exit } = await session.reaches("exited", task);
        expect(exit?.exitCode).toBe(3);
      }),
    );
    for (const task of ids) session.send({ forget: { task } });
    const left = () => readdirSync(join(leader.folder, "worker/jobs"));
    await until("their folders are gone", () => left().length === 0);
    session.statuses.clear();
  };
  const heaps: number[] = [];
  const handles: number[] = [];
  const batches = Math.ceil(TASKS / BATCH);
  for (let at = 1; at <= batches; at++) {
    await batch(at * BATCH);
    if (at % Math.ceil(batches / SAMPLES) !== 0) continue;
    heaps.push(await heap.bytes());
    handles.push(handlesOf(worker.pid ?? 0).descriptors);
  }
  const reported = heaps.map((bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`).join(", ");
  if (process.env["HEDDLE_SOAK_TASKS"])
    console.log(`heap after each part of ${TASKS} tasks: ${reported}; descriptors ${handles}`);
  expect(heaps.at(-1)! - heaps[1]!, reported).toBeLessThan(MAX_GROWTH_BYTES);
  expect(handles.at(-1)! - handles[0]!, `${handles}`).toBeLessThanOrEqual(MAX_MORE_DESCRIPTORS);
}, 36_000_000);
