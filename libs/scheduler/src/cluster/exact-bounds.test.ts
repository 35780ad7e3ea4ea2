// holds: sched-exact

import { expect, test } from "vitest";
import { node, queued, request } from "../testing/scenarios.ts";
import { Eligibility } from "./eligibility.ts";
import { Ledger } from "./ledger.ts";
import { QuotaLedger } from "./quota-ledger.ts";
import { Roster } from "./roster.ts";
import { ShapeTable } from "./shape.ts";
import { wantsTheSame } from "./shared-amounts.ts";

test("named device: it is not over-committed by a thousandth", () => {
  const roster = new Roster([node("n", { gpus: 2 })]);
  const table = new ShapeTable(roster);
  const ledger = Ledger.ofCapacity(roster, 1);
  const named = table.of(request({ gpuIndex: 1 }));
  expect([ledger.fits(0, named), ledger.copies(0, named, 9)]).toEqual([true, 1]);
  ledger.take(0, table.of(request({ gpuMilli: 1 })), [1]);
  expect([ledger.fits(0, named), ledger.copies(0, named, 9)]).toEqual([false, 0]);
});

test("quota: it is not exceeded by a thousandth of a device", () => {
  const use = { usedGpuHours: 0, gpuMilli: 600, running: () => [] };
  const blockersOf = (gpuMilli: number) =>
    new QuotaLedger({ gpuMilli: 1_000 }, use, 0, { jobTimeoutMs: 1_000 }).blockers(
      queued("j", { request: request({ gpuMilli }) }),
    );
  expect(blockersOf(400)).toEqual([]);
  expect(blockersOf(401)).toMatchObject([{ requested: 401, free: 400, limit: 1_000 }]);
});

test("shared amounts: two requests compete only where both need the same kind", () => {
  const storage = { storageMb: 1, shards: 0, placesPerShard: 1 };
  const shards = { storageMb: 0, shards: 1, placesPerShard: 1 };
  expect(wantsTheSame(storage, storage)).toBe(true);
  expect(wantsTheSame(shards, shards)).toBe(true);
  expect(wantsTheSame(storage, shards)).toBe(false);
  expect(wantsTheSame(shards, storage)).toBe(false);
  expect(wantsTheSame(shards, undefined)).toBe(false);
});

test("eligibility: requests that filter differently have filters of their own", () => {
  const roster = new Roster([
    node("plain"),
    node("tainted", { taints: ["t"] }),
    node("small", { gpuMemoryGb: 1 }),
  ]);
  const eligibility = new Eligibility(roster);
  const eligible = (change: Parameters<typeof request>[0]) =>
    [...eligibility.of(request(change)).eligible].slice(0, 3);
  expect(eligible({})).toEqual([1, 0, 1]);
  expect(eligible({ tolerations: ["t"] })).toEqual([1, 1, 1]);
  expect(eligible({ gpuMemoryGb: 2 })).toEqual([1, 0, 0]);
  expect(eligible({ gpuMemoryGb: 2, tolerations: ["t"] })).toEqual([1, 1, 0]);
});
