// holds: ops-restore-incarnation

import { nextClusterId } from "@heddle/base/cluster-id";
import { expect, test } from "vitest";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { LeaseHold } from "./lease-hold.ts";

const formed = "0123456789abcdef0123456789abcdef";
const LEASE_MS = 20_000;
const HELD_MS = LEASE_MS + 5_000;

/** The hold of a master of the cluster that began at the time, and its clock. */
function holdOf(cluster: string, startedAtMs: number) {
  const clock = {
    wall: startedAtMs,
    monotonic: 7,
    wallMs: () => clock.wall,
    monotonicMs: () => clock.monotonic,
  };
  const control = { group: { status: () => ({ cluster }) } } as unknown as ControlPlane;
  return { clock, hold: new LeaseHold(control, clock, LEASE_MS) };
}

test("lease hold: a cluster that was formed starts tasks at once", () => {
  expect(holdOf(formed, 1_000).hold.leftMs).toBeUndefined();
});

test("lease hold: after a restore nothing starts until earlier leases have expired", () => {
  const { clock, hold } = holdOf(nextClusterId(formed, 1_000_000, "ab"), 1_004_000);
  expect(hold.leftMs).toBe(HELD_MS - 4_000);
  clock.monotonic += HELD_MS - 4_001;
  expect(hold.leftMs).toBe(1);
  clock.monotonic += 1;
  expect(hold.leftMs).toBeUndefined();
});

test("lease hold: what is left is in whole milliseconds", () => {
  const { clock, hold } = holdOf(nextClusterId(formed, 1_000_000, "ab"), 1_000_000);
  clock.monotonic += 0.4;
  expect(hold.leftMs).toBe(HELD_MS);
});

test.each([3_600_000, -3_600_000])("lease hold: a clock set by %i ms changes nothing", (byMs) => {
  const { clock, hold } = holdOf(nextClusterId(formed, 1_000_000, "ab"), 1_000_000);
  clock.wall += byMs;
  expect(hold.leftMs).toBe(HELD_MS);
  clock.monotonic += HELD_MS;
  expect(hold.leftMs).toBeUndefined();
});

test("lease hold: a clock that was ahead at the restore delays by at most a lease", () => {
  const { hold } = holdOf(nextClusterId(formed, 9_000_000, "ab"), 1_000_000);
  expect(hold.leftMs).toBe(HELD_MS);
});
