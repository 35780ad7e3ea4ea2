import { expect, test } from "vitest";
import type { SharedAmounts } from "./model.ts";
import { schedule } from "./schedule.ts";
import { HOUR_MS, input, node, queued, request, running } from "./testing/scenarios.ts";

const storage = (storageMb: number): SharedAmounts => ({ storageMb, shards: 0 });
const supply = (limitMb: number, freeMb = limitMb) => {
  return { shared: { limit: storage(limitMb), free: storage(freeMb) } };
};
const job = (id: string, storageMb: number, submittedAtMs: number, hours = 1) =>
  queued(id, { shared: storage(storageMb), submittedAtMs, maxRuntimeMs: hours * HOUR_MS });
const startsOf = (at: ReturnType<typeof input>) => schedule(at).starts.map(({ jobId }) => jobId);

test("what is shared goes by the order of the queue, and only to jobs that could start", () => {
  const at = input({ nodes: [node("n")], ...supply(10) }, [
    { ...job("depends", 8, 0), waitingFor: ["x"] },
    { ...job("late", 8, 0), notBeforeMs: 1 },
    job("old", 8, 1),
    { ...job("urgent", 8, 2), priority: 1 },
  ]);
  const { starts, pending } = schedule(at);
  expect(starts.map(({ jobId }) => jobId)).toEqual(["urgent"]);
  const blocker = { reason: "InsufficientMemory", resource: "shared_storage_gb" };
  expect(pending.find(({ jobId }) => jobId === "old")?.blockers).toEqual([
    { ...blocker, requested: 0.008, free: 0.002, limit: 0.01 },
  ]);
});

test("the head job is promised what is shared too, and backfill leaves it that", () => {
  const busy = running("busy", [{ nodeId: "n", devices: [0] }], {
    shared: storage(6),
    maxRuntimeMs: 2 * HOUR_MS,
  });
  const at = input({ nodes: [node("n")], running: [busy], ...supply(10, 4) }, [
    job("head", 8, 0),
    job("long", 3, 1, 9),
    job("short", 3, 2, 2),
    job("long2", 2, 3, 9),
    job("long3", 1, 4, 9),
  ]);
  const plan = schedule(at);
  expect(plan.reservation).toMatchObject({ jobId: "head", startAtMs: 2 * HOUR_MS });
  // 2 are left beside the head then, and 4 are free now, of which short takes 3.
  expect(plan.starts.map(({ jobId }) => jobId)).toEqual(["short", "long3"]);
});

test("a lack of shared storage is no lack of nodes: those behind go on", () => {
  const at = input({ nodes: [node("n")], ...supply(10, 0) }, [
    job("lacks", 8, 0),
    job("needs-none", 0, 1, 9),
  ]);
  expect(startsOf(at)).toEqual(["needs-none"]);
});

test("a job of a higher level has those leave that hold what it lacks", () => {
  const busy = ["a", "b"].map((id, at) =>
    running(id, [{ nodeId: "n", devices: [at] }], { shared: storage(5 - 5 * at), priority: -1 }),
  );
  const at = input({ nodes: [node("n")], running: busy, ...supply(5, 0) }, [job("head", 5, 0)]);
  expect(schedule(at).preemptions).toMatchObject([{ victimId: "a", forJobId: "head" }]);
});

test("too few nodes and too little of what is shared are told together", () => {
  const wide = { ...job("q", 8, 0), request: request({ gpus: 9 }) };
  const [{ blockers } = { blockers: [] }] = schedule(
    input({ nodes: [node("n")], ...supply(10, 2) }, [wide]),
  ).pending;
  expect(blockers.map(({ resource }) => resource)).toEqual(["shared_storage_gb", "gpu_milli"]);
});
