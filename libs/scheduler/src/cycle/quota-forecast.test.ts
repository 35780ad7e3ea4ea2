// holds: sched-explain, sched-reserved-quota

import { runToEnd } from "@heddle/base/async/steps";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { QueuedJob } from "../model.ts";
import { entryKey } from "../plan-entry.ts";
import { HOUR_MS, input, project, queued, request } from "../testing/scenarios.ts";
import { aheadInQueue, type ExpectedEnd, quotaAvailableMs } from "./quota-forecast.ts";
import { snapshotFrom } from "./scheduling-cycle.ts";

test("queue length: the older jobs of the project that could start are ahead", () => {
  const old = ["a", "b", "c"].map((id, submittedAtMs) => queued(id, { submittedAtMs }));
  const job = queued("q", { submittedAtMs: 10 });
  const others = [
    queued("younger", { submittedAtMs: 11 }),
    queued("elsewhere", { project: "p2" }),
    queued("waits", { waitingFor: ["x"] }),
    queued("later", { notBeforeMs: 1 }),
  ];
  const of = (queueLength: number | undefined, change: Partial<QueuedJob> = {}) => {
    const projects = [project("p1", { quota: { queueLength } })];
    const snapshot = snapshotFrom(input({ projects }, [...others, job, ...old]));
    const { ahead, mustStart } = aheadInQueue(snapshot, { ...job, ...change }, new Set(["b"]));
    return [ahead.map(({ entry }) => entryKey(entry)), mustStart];
  };
  expect(of(2)).toEqual([["a", "c"], 1]);
  expect(of(3)).toEqual([["a", "c"], 0]);
  expect(of(9)).toEqual([["a", "c"], 0]);
  expect(of(undefined)).toEqual([[], 0]);
  expect(of(1, { joinsRunning: true })).toEqual([[], 0]);
});

/** A job of some whole GPUs that ends at an hour. */
function holder(n: number, gpus: number, endHour: number, change: Partial<QueuedJob>): ExpectedEnd {
  const job = { ...queued(`h${n}`, { request: request({ gpus }), ...change }), startedAtMs: 0 };
  return { job, endsMs: endHour * HOUR_MS } as ExpectedEnd;
}

test("quota: the earliest time at which GPUs, hours and running jobs are within bounds", () => {
  const holders = fc.array(
    fc.record({
      gpus: fc.nat(3),
      end: fc.integer({ min: 1, max: 6 }),
      name: fc.constantFrom("p1", "p1", "p2"),
      kind: fc.constantFrom("training" as const, "serving" as const),
    }),
    { maxLength: 6 },
  );
  const bounds = fc.record({
    gpus: fc.option(fc.integer({ min: 1, max: 6 }), { nil: undefined }),
    hours: fc.option(fc.integer({ min: 1, max: 40 }), { nil: undefined }),
    most: fc.integer({ min: 1, max: 6 }),
    windowHour: fc.constantFrom(undefined, 2, 3),
    wanted: fc.integer({ min: 1, max: 3 }),
  });
  const seen = new Set<number | undefined>();
  const property = fc.property(
    holders,
    bounds,
    (held, { gpus, hours, most, windowHour, wanted }) => {
      const ends = held.map(({ gpus: own, end, name, kind }, n) =>
        holder(n, own, end, { project: name, kind, maxRuntimeMs: end * HOUR_MS }),
      );
      const used = 1;
      const state = project("p1", {
        quota: { gpuMilli: gpus && gpus * 1_000, gpuHours: hours },
        usedGpuHours: used,
        windowEndsMs: windowHour && windowHour * HOUR_MS,
      });
      const snapshot = snapshotFrom(
        input({ projects: [state] }, [], { settings: { maxConcurrentJobs: most } }),
      );
      const job = queued("q", { request: request({ gpus: wanted }), maxRuntimeMs: HOUR_MS });
      /** The definition, hour by hour. */
      const allows = (hour: number) => {
        const own = held.filter(({ name }) => name === "p1");
        const rest = own.filter(({ end }) => end > hour);
        const isNew = windowHour !== undefined && hour >= windowHour;
        const since = isNew ? windowHour : 0;
        const sum = (each: readonly number[]) => each.reduce((total, one) => total + one, 0);
        const past = own.map(({ gpus: g, end }) => g * Math.max(0, Math.min(end, hour) - since));
        const future = rest.map(({ gpus: g, end }) => g * (end - hour));
        const committed = (isNew ? 0 : used) + sum(past) + sum(future);
        const running = held.filter(({ kind, end }) => kind === "training" && end > hour).length;
        return (
          running < most &&
          (gpus === undefined || sum(rest.map((one) => one.gpus)) + wanted <= gpus) &&
          (hours === undefined || wanted <= hours - committed)
        );
      };
      const hour = [0, 1, 2, 3, 4, 5, 6].find((each) => allows(each));
      const found = runToEnd(quotaAvailableMs(snapshot, job, ends));
      expect(found).toBe(hour === undefined ? undefined : hour * HOUR_MS);
      seen.add(hour);
      const joins = quotaAvailableMs(snapshot, { ...job, joinsRunning: true }, ends);
      expect(runToEnd(joins) ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(
        found ?? Number.POSITIVE_INFINITY,
      );
    },
  );
  fc.assert(property, { numRuns: 500 });
  expect(seen.size).toBeGreaterThan(5);
});

test("quota: a project without a record has none", () => {
  const snapshot = snapshotFrom(input({}, []));
  const ends = [holder(1, 8, 2, {})];
  expect(runToEnd(quotaAvailableMs(snapshot, queued("q"), ends))).toBe(0);
});
