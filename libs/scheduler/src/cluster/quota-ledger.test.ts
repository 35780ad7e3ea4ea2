import { expect, test } from "vitest";
import type { ProjectQuota } from "../model.ts";
import { HOUR_MS, queued, request, running } from "../testing/scenarios.ts";
import { gpuHours, QuotaLedger } from "./quota-ledger.ts";

const BOUNDS = { jobTimeoutMs: 10 * HOUR_MS };

/** A quota, and `used` running jobs of one GPU and one hour that count against it. */
function ledger(quota: ProjectQuota, used = 0, startedAtMs: readonly number[] = [], nowMs = 0) {
  const jobs = startedAtMs.map((at, n) =>
    running(`r${n}`, [{ nodeId: "n", devices: [n] }], { startedAtMs: at }),
  );
  const use = { usedGpuHours: used, gpuMilli: 1_000 * jobs.length, running: () => jobs };
  return new QuotaLedger(quota, use, nowMs, BOUNDS);
}

/** A job of that many GPUs and hours. */
const job = (gpus: number, hours: number | undefined, change = {}) =>
  queued("j", {
    request: request({ gpus }),
    maxRuntimeMs: hours === undefined ? undefined : hours * HOUR_MS,
    ...change,
  });

test("quota: exactly its number of GPUs may be held", () => {
  const two = ledger({ gpuMilli: 3_000 }, 0, [0]);
  expect(two.blockers(job(2, 1))).toEqual([]);
  expect(two.blockers(job(3, 1))).toEqual([
    {
      reason: "QuotaExceeded",
      resource: "gpu_milli",
      requested: 3_000,
      free: 2_000,
      limit: 3_000,
    },
  ]);
});

test("quota: hours used, remaining and requested may add up to all of it", () => {
  const hours = ledger({ gpuHours: 6 }, 2, [0], HOUR_MS / 2);
  expect(hours.blockers(job(1, 3.5))).toEqual([]);
  expect(hours.blockers(job(1, 3.6))).toMatchObject([
    { resource: "gpu_hours", requested: 3.6, free: 3.5, limit: 6 },
  ]);
  expect(hours.blockers(job(2, 1.75))).toEqual([]);
});

test("quota: a job past its bound has no remaining use", () => {
  expect(ledger({ gpuHours: 3 }, 2, [0], 5 * HOUR_MS).blockers(job(1, 1))).toEqual([]);
});

test("quota: a job without an end is charged the timeout, a longer one no more", () => {
  const hours = ledger({ gpuHours: 10 });
  expect(hours.blockers(job(1, undefined))).toEqual([]);
  expect(hours.blockers(job(1, 99))).toEqual([]);
  expect(hours.blockers(job(1, undefined, { kind: "serving" }))).toEqual([]);
  expect(ledger({ gpuHours: 9.9 }).blockers(job(1, undefined, { kind: "serving" }))).toHaveLength(
    1,
  );
});

test("quota: a job without GPUs needs none of it, even if it is exceeded", () => {
  const passed = ledger({ gpuMilli: 0, gpuHours: 0 }, 5, [0]);
  expect(passed.blockers(job(0, 1))).toEqual([]);
  expect(passed.hasRoomBesideWaiting(job(0, 1))).toBe(true);
  expect(passed.blockers(job(1, 1)).map(({ free }) => free)).toEqual([0, 0]);
});

test("quota: each start reduces the remaining GPUs and hours", () => {
  const both = ledger({ gpuMilli: 4_000, gpuHours: 6 });
  both.charge(job(2, 2));
  expect(both.blockers(job(2, 1))).toEqual([]);
  expect(both.blockers(job(3, 0.5)).map(({ resource }) => resource)).toEqual(["gpu_milli"]);
  expect(both.blockers(job(2, 1.1)).map(({ resource }) => resource)).toEqual(["gpu_hours"]);
});

test("quota: reservations, not starts, leave room for jobs without a reservation", () => {
  const both = ledger({ gpuMilli: 4_000, gpuHours: 6 });
  both.keepForWaiting(job(1, 2));
  expect(both.hasRoomBesideWaiting(job(3, 1))).toBe(true);
  expect(both.hasRoomBesideWaiting(job(4, 0.5))).toBe(false);
  expect(both.hasRoomBesideWaiting(job(2, 2))).toBe(true);
  expect(both.hasRoomBesideWaiting(job(2, 2.1))).toBe(false);
  expect(both.blockers(job(4, 1.5))).toEqual([]);
});

test("quota: GPU-hours are of thousandths and milliseconds", () => {
  expect(gpuHours(500, 2 * HOUR_MS)).toBe(1);
});
