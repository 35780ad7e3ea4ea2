import { expect, test } from "vitest";
import { isOfEarlierCluster } from "./task-orders.ts";

test("task orders: a lease from before a restore is not the lease to be given", () => {
  const leasedBy = (cluster: string) => ({ cluster });
  const [reserved, running] = [{ phase: "reserved" }, { phase: "running" }] as const;
  expect(isOfEarlierCluster(reserved, leasedBy("before"), "now")).toBe(true);
  // In the backup it was running: its exit counts.
  expect(isOfEarlierCluster(running, leasedBy("before"), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, leasedBy("now"), "now")).toBe(false);
  // A worker of an earlier version does not report it.
  expect(isOfEarlierCluster(reserved, leasedBy(""), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, undefined, "now")).toBe(false);
});
