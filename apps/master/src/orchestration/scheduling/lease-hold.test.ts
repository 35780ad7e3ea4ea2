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
  const clock = { now: startedAtMs, wallMs: () => clock.now };
  const control = { group: { status: () => ({ cluster }) } } as unknown as ControlPlane;
  return { clock, hold: new LeaseHold(control, clock, LEASE_MS) };
}

test("lease hold: a cluster that was formed starts tasks at once", () => {
  expect(holdOf(formed, 1_000).hold.untilMs).toBeUndefined();
});

test("lease hold: after a restore nothing starts until earlier leases have expired", () => {
  const { clock, hold } = holdOf(nextClusterId(formed, 1_000_000, "ab"), 1_004_000);
  expect(hold.untilMs).toBe(1_000_000 + HELD_MS);
  clock.now = 1_000_000 + HELD_MS - 1;
  expect(hold.untilMs).toBeDefined();
  clock.now += 1;
  expect(hold.untilMs).toBeUndefined();
});

test("lease hold: a clock that was ahead at the restore delays by at most a lease", () => {
  const { hold } = holdOf(nextClusterId(formed, 9_000_000, "ab"), 1_000_000);
  expect(hold.untilMs).toBe(1_000_000 + HELD_MS);
});
