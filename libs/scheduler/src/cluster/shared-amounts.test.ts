// holds: sched-backfill, sched-shared-storage, sched-shards-plan

import fc from "fast-check";
import { expect, test } from "vitest";
import type { QueuedJob, RunningJob, SharedAmounts } from "../model.ts";
import { entryKey, jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { HOUR_MS, input, node, queued, request, running } from "../testing/scenarios.ts";
import {
  addShared,
  allFit,
  roomForShards,
  sharedFits,
  shareOf,
  spreadShards,
} from "./shared-amounts.ts";

const storage = (storageMb: number): SharedAmounts => ({ storageMb, places: new Map() });
const supply = (limitMb: number, freeMb = limitMb) => {
  return { shared: { limit: storage(limitMb), free: storage(freeMb) } };
};
const job = (id: string, storageMb: number, submittedAtMs: number, hours = 1) =>
  queued(id, {
    shared: { storageMb, shards: 0, placesPerShard: 1 },
    submittedAtMs,
    maxRuntimeMs: hours * HOUR_MS,
  });
const startsOf = (at: ReturnType<typeof input>) =>
  schedule(at).starts.map(({ entry }) => entryKey(entry));

test("shared amounts: allocated in queue order, only to jobs that could start", () => {
  const at = input({ nodes: [node("n")], ...supply(10) }, [
    { ...job("depends", 8, 0), waitingFor: ["x"] },
    { ...job("late", 8, 0), notBeforeMs: 1 },
    job("old", 8, 1),
    { ...job("urgent", 8, 2), priority: 1 },
  ]);
  const { starts, pending } = schedule(at);
  expect(starts.map(({ entry }) => entryKey(entry))).toEqual(["urgent"]);
  const blocker = { reason: "InsufficientSharedStorage", resource: "shared_storage_gb" };
  expect(pending.find(({ entry }) => entryKey(entry) === "old")?.blockers).toEqual([
    { ...blocker, requested: 0.008, free: 0.002, limit: 0.01 },
  ]);
});

test("shared amounts: the head's reservation includes them, and backfill leaves them", () => {
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
  expect(plan.reservations[0]).toMatchObject({ entry: jobEntry("head"), startAtMs: 2 * HOUR_MS });
  // 2 are left beside the head then, and 4 are free now, of which short takes 3.
  expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(["short", "long3"]);
});

test("shared storage: a lack of it does not block later jobs", () => {
  const at = input({ nodes: [node("n")], ...supply(10, 0) }, [
    job("lacks", 8, 0),
    job("needs-none", 0, 1, 9),
  ]);
  expect(startsOf(at)).toEqual(["needs-none"]);
});

test("shared amounts: a job of a higher level evicts the holders of what it lacks", () => {
  const busy = ["a", "b"].map((id, at) =>
    running(id, [{ nodeId: "n", devices: [at] }], { shared: storage(5 - 5 * at), priority: -1 }),
  );
  const at = input({ nodes: [node("n")], running: busy, ...supply(5, 0) }, [job("head", 5, 0)]);
  expect(schedule(at).preemptions).toMatchObject([{ victimId: "a", forEntry: jobEntry("head") }]);
});

test("blockers: missing nodes and missing shared amounts are reported together", () => {
  const wide = { ...job("q", 8, 0), request: request({ gpus: 9 }) };
  const [{ blockers } = { blockers: [] }] = schedule(
    input({ nodes: [node("n")], ...supply(10, 2) }, [wide]),
  ).pending;
  expect(blockers.map(({ resource }) => resource)).toEqual(["shared_storage_gb", "gpu_milli"]);
});

const servers = (...free: number[]) => new Map(free.map((places, at) => [`s${at}`, places]));
/** Servers of eight places each, and how many of them are free. */
const places = (...free: number[]) => ({
  shared: {
    limit: { storageMb: 0, places: servers(...free.map(() => 8)) },
    free: { storageMb: 0, places: servers(...free) },
  },
});
const trains = (
  id: string,
  [shards, placesPerShard]: [number, number],
  change: Partial<QueuedJob> = {},
) => queued(id, { shared: { storageMb: 0, shards, placesPerShard }, ...change });
const holds = (id: string, device: number, held: number[], change: Partial<RunningJob> = {}) =>
  running(id, [{ nodeId: "n", devices: [device] }], {
    shared: { storageMb: 0, places: servers(...held) },
    ...change,
  });

test("blockers: jobs that need shards are behind each other, also on other nodes", () => {
  const types = ["A", "B", "C"];
  const on = (at: number, gpus: number) => ({
    request: request({ gpuTypes: [types[at]!], gpus }),
    submittedAtMs: at,
  });
  const nodes = types.map((gpuType) => node(gpuType, { gpuType }));
  const { pending } = schedule(
    input({ nodes, ...places(0) }, [
      trains("first", [1, 1], on(0, 1)),
      trains("second", [1, 1], on(1, 1)),
      trains("needs-none", [0, 1], on(2, 9)),
    ]),
  );
  const behind = pending.filter(({ blockers }) =>
    blockers.some(({ reason }) => reason === "PriorityBehind"),
  );
  expect(pending).toHaveLength(3);
  expect(behind.map(({ entry }) => entryKey(entry))).toEqual(["second"]);
});

test("shards: a job whose shard fits on no server with all its places is not planned", () => {
  const at = input({ nodes: [node("n")], ...places(3, 3) }, [trains("whole", [1, 4])]);
  const { starts, pending } = schedule(at);
  expect(starts).toEqual([]);
  const fits = input({ nodes: [node("n")], ...places(3, 3) }, [trains("fits", [2, 3])]);
  expect(startsOf(fits)).toEqual(["fits"]);
  expect(pending[0]?.blockers[0]).toEqual({
    reason: "Fragmented",
    resource: "parameter_server_shards_of_4_fragments",
    requested: 1,
    free: 0,
    limit: 4,
  });
  const tooFew = input({ nodes: [node("n")], ...places(3, 3) }, [trains("wide", [7, 1])]);
  expect(schedule(tooFew).pending[0]?.blockers[0]).toEqual({
    reason: "AffinityNoMatch",
    resource: "parameter_server_shards",
    requested: 7,
    free: 6,
    limit: 16,
  });
});

test("shards: a start is planned with the places that earlier ones leave", () => {
  const at = input({ nodes: [node("n")], ...places(5, 4) }, [
    trains("first", [2, 2], { submittedAtMs: 0 }),
    trains("second", [1, 4], { submittedAtMs: 1 }),
  ]);
  // The first takes 2 of each server, so that 3 and 2 are left.
  expect(startsOf(at)).toEqual(["first"]);
});

test("shards: the head's reservation has whole servers, and backfill leaves them", () => {
  const busy = holds("busy", 0, [0, 6], { maxRuntimeMs: 2 * HOUR_MS });
  const at = input({ nodes: [node("n")], running: [busy], ...places(4, 2) }, [
    trains("head", [2, 4], { submittedAtMs: 0 }),
    // It would take the server with the most free places, and leave the head 3 and 8 then: one
    // shard too few.
    trains("long", [1, 1], { submittedAtMs: 1, maxRuntimeMs: 9 * HOUR_MS }),
    trains("short", [1, 1], { submittedAtMs: 2, maxRuntimeMs: HOUR_MS }),
  ]);
  const plan = schedule(at);
  expect(plan.reservations[0]).toMatchObject({ entry: jobEntry("head"), startAtMs: 2 * HOUR_MS });
  // 8 and 8 less 4 and 4 of the head are left: the long one fits beside it on any server.
  expect(plan.starts.map(({ entry }) => entryKey(entry))).toEqual(["long", "short"]);
  const full = {
    ...at,
    queue: at.queue.map((job) => (entryKey(job.entry) === "head" ? wider(job) : job)),
  };
  // Three shards of 4 take one server whole and half of the other, where the long one has a place.
  expect(startsOf(full)).toEqual(["short"]);
});

function wider(job: QueuedJob): QueuedJob {
  return { ...job, shared: { storageMb: 0, shards: 3, placesPerShard: 4 } };
}

test("shards: victims free a whole server, not scattered places", () => {
  const low = { priority: -1 };
  const scattered = [0, 1].map((at) =>
    holds(`scattered${at}`, at, at === 0 ? [2, 0] : [0, 2], low),
  );
  const whole = holds("whole", 2, [4, 0], { ...low, checkpointedAtMs: -HOUR_MS });
  const at = input({ nodes: [node("n")], running: [...scattered, whole], ...places(2, 2) }, [
    trains("head", [1, 6]),
  ]);
  expect(schedule(at).preemptions.map(({ victimId }) => victimId)).toEqual(["whole"]);
});

test("shards: placed by most free places, and more room never leaves less later", () => {
  expect(spreadShards(servers(3, 5, 4), { shards: 4, placesPerShard: 2 })).toEqual([
    "s1",
    "s2",
    "s0",
    "s1",
  ]);
  const amounts = fc.array(fc.nat({ max: 12 }), { minLength: 1, maxLength: 5 });
  const jobs = fc.array(
    fc.record({ shards: fc.nat({ max: 5 }), each: fc.integer({ min: 1, max: 6 }) }),
  );
  fc.assert(
    fc.property(amounts, amounts, jobs, (free, more, wanted) => {
      let less: SharedAmounts = { storageMb: 0, places: servers(...free) };
      let rich: SharedAmounts = {
        storageMb: 0,
        places: servers(...free.map((count, at) => count + (more[at] ?? 0))),
      };
      for (const { shards, each } of wanted) {
        const request = { storageMb: 0, shards, placesPerShard: each };
        const fits = sharedFits(less, request);
        expect(fits).toBe(shards <= roomForShards(less.places.values(), each));
        if (!fits) continue;
        less = addShared(less, shareOf(less, request), -1);
        // A count that fits is placed, with no server overdrawn.
        expect(Math.min(...less.places.values())).toBeGreaterThanOrEqual(0);
        expect(sharedFits(rich, request)).toBe(true);
        rich = addShared(rich, shareOf(rich, request), -1);
      }
    }),
  );
});

test("shared amounts: what all fit has room for each of them, in any order", () => {
  const amounts = fc.record({
    storageMb: fc.integer({ min: -2, max: 9 }),
    free: fc.array(fc.nat({ max: 9 }), { minLength: 1, maxLength: 4 }),
  });
  const wanted = fc.array(
    fc.record({
      storageMb: fc.nat({ max: 3 }),
      shards: fc.nat({ max: 3 }),
      placesPerShard: fc.integer({ min: 1, max: 4 }),
    }),
    { maxLength: 4 },
  );
  let fitting = 0;
  const property = fc.property(amounts, wanted, ({ storageMb, free }, jobs) => {
    const all: SharedAmounts = { storageMb, places: servers(...free) };
    if (!allFit(all, jobs)) return;
    fitting += jobs.length > 1 ? 1 : 0;
    for (const order of [jobs, jobs.toReversed()]) {
      let left = all;
      for (const each of order) {
        expect(sharedFits(left, each)).toBe(true);
        left = addShared(left, shareOf(left, each), -1);
      }
    }
  });
  fc.assert(property, { numRuns: 1_000 });
  expect(fitting).toBeGreaterThan(50);
});

test("shared amounts: jobs fit together up to the last unit", () => {
  const free = (storageMb: number, ...each: number[]) => ({ storageMb, places: servers(...each) });
  const stored = (storageMb: number) => ({ storageMb, shards: 0, placesPerShard: 1 });
  expect(allFit(free(5), [stored(2), stored(3)])).toBe(true);
  expect(allFit(free(4), [stored(2), stored(3)])).toBe(false);
  expect(allFit(free(-1), [stored(0)])).toBe(true);
  const trained = (shards: number, placesPerShard: number) => ({
    storageMb: 0,
    shards,
    placesPerShard,
  });
  // Up to one place less than the largest shard may be left on all servers but one.
  const both = [trained(1, 3), trained(2, 1)];
  expect([7, 6].map((places) => allFit(free(0, places - 4, 4), both))).toEqual([true, false]);
  expect(allFit(free(0, 5), both)).toBe(true);
  // A job alone is counted exactly.
  expect([trained(2, 3), trained(3, 3)].map((each) => allFit(free(0, 3, 3), [each]))).toEqual([
    true,
    false,
  ]);
});
