import { expect, test } from "vitest";
import { isOfEarlierCluster } from "./task-orders.ts";

test("task orders: what was leased before a restore is none of the tasks that are to be leased", () => {
  const leasedBy = (cluster: string) => ({ cluster });
  const [reserved, running] = [{ phase: "reserved" }, { phase: "running" }] as const;
  expect(isOfEarlierCluster(reserved, leasedBy("before"), "now")).toBe(true);
  // In the backup it had begun: its end counts.
  expect(isOfEarlierCluster(running, leasedBy("before"), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, leasedBy("now"), "now")).toBe(false);
  // A worker of an earlier version does not tell.
  expect(isOfEarlierCluster(reserved, leasedBy(""), "now")).toBe(false);
  expect(isOfEarlierCluster(reserved, undefined, "now")).toBe(false);
});
