// holds: bound-forgotten-jobs

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { VolatileControl } from "../../test/test-master.ts";
import { Scheduling } from "./scheduling/scheduling.ts";
import { schedulingStep } from "./scheduling/scheduling-step.ts";

/** Jobs that are submitted and dropped; docs/benchmarks.md has the results of 200,000. */
const JOBS = Number(process.env["HEDDLE_SOAK_JOBS"] ?? 2_400);
const BATCH = 100;
const FORGOTTEN_AFTER_MS = 8 * 24 * 3_600_000;
/** Approximate distinct bytes of one job. */
const JOB_BYTES = 8_192;
const MAX_GROWTH_BYTES = 12 * 2 ** 20;
/** Heap samples; caches may fill during the first ones. */
const SAMPLES = 6;
const WARM_SAMPLES = 3;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

function heapBytes(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}

/** A job that shares no name, label or request with another. */
function distinct(n: number) {
  const words = (what: string) =>
    Object.fromEntries(
      Array.from({ length: 16 }, (_, at) => [`${what}-${n}-${at}`, `${n}`.padEnd(64, "x")]),
    );
  return jobSpec({
    name: `name-${n}`,
    labels: words("label"),
    tasks: 1 + (n % 3),
    environment_variables: { ["V".padEnd(40, `${n}_`)]: "v".repeat(JOB_BYTES / 8) },
    resources: {
      gpu_count: 1 + (n % 3),
      cpu_cores: 1 + n / 1_000,
      memory_gb: 1 + n / 1_000,
      node_affinity: n % 2 === 0 ? words("key") : undefined,
      node_anti_affinity: words("not"),
      tolerations: Object.keys(words("taint")),
    },
  });
}

test("memory: dropped jobs leave nothing behind", async () => {
  const control = new VolatileControl();
  const scheduling = new Scheduling(control);
  let atMs = Date.now();
  for (let at = 0; at < 20; at++) {
    await control.propose({ type: "node.join", atMs, offer: nodeOffer(`n${at}`) });
  }
  const batch = async (from: number): Promise<void> => {
    for (let n = from; n < from + BATCH; n++) {
      const reply = await control.propose(
        { type: "job.submit", atMs, jobId: jobId(n), spec: distinct(n) },
        { idempotency: idempotencyOf(n) },
      );
      expect(reply.ok).toBe(true);
    }
    await schedulingStep({ ...scheduling, control, acknowledgeMs: 1_000 });
    for (const n of [from, from + 1]) {
      await scheduling.explainer.explain(control.state.jobs.get(jobId(n))!);
    }
    scheduling.plans.allBlockers();
    for (let n = from; n < from + BATCH; n++) {
      await control.propose({ type: "job.request", atMs, jobId: jobId(n), request: "cancel" });
    }
    for (const { jobId: id, attempt, rank, nodeId } of [...control.state.tasks.values()]) {
      const exit = { endedAtMs: 1 };
      const reports = [{ jobId: id, attempt, rank, phase: "exited" as const, exit }];
      await control.propose({ type: "tasks.report", atMs, nodeId, reports });
    }
    atMs += FORGOTTEN_AFTER_MS;
    await control.propose({ type: "clock.tick", atMs });
    expect(control.state.jobs.size).toBe(0);
  };
  const heap: number[] = [];
  for (let part = 0; part < SAMPLES; part++) {
    const [first, end] = [part, part + 1].map((at) => Math.ceil((at * JOBS) / SAMPLES / BATCH));
    for (let at = first!; at < end!; at++) await batch(at * BATCH);
    heap.push(heapBytes());
  }
  const reported = heap.map((bytes) => `${Math.round(bytes / 2 ** 20)} MiB`).join(", ");
  if (process.env["HEDDLE_SOAK_JOBS"])
    console.log(`heap after each part of ${JOBS} jobs: ${reported}`);
  expect(heap.at(-1)! - heap[WARM_SAMPLES - 1]!, reported).toBeLessThan(MAX_GROWTH_BYTES);
}, 3_600_000);

function idempotencyOf(n: number) {
  return { id: `soak:${n}:request`, fingerprint: "0".repeat(64), answer: "told".repeat(64) };
}
