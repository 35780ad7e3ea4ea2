// holds: ops-restore-incarnation

import { expect, test } from "vitest";
import { clusterRefusal, nextClusterId, parseClusterId } from "./cluster-id.ts";

const formed = "0123456789abcdef0123456789abcdef";

test("cluster id: the next incarnation has the same lineage and a higher number", () => {
  const first = nextClusterId(formed, 1_000.7, "ab");
  expect(parseClusterId(first)).toEqual({ lineage: formed, incarnation: 1_000 });
  expect(parseClusterId(nextClusterId(first, 5, "cd")).incarnation).toBe(1_001);
  expect(parseClusterId(nextClusterId(first, 9_000, "cd")).incarnation).toBe(9_000);
  expect(parseClusterId(formed)).toEqual({ lineage: formed, incarnation: 0 });
});

test("cluster id: a node refuses an incarnation that is not later than its own", () => {
  const [early, late] = [nextClusterId(formed, 10, "aa"), nextClusterId(formed, 20, "bb")];
  for (const [followed, other] of [
    [undefined, formed],
    [formed, formed],
    [formed, early],
    [early, late],
    // The id of another cluster has no bearing on this one.
    [late, "fedcba9876543210fedcba9876543210"],
  ] as const) {
    expect(clusterRefusal(followed, other)).toBeUndefined();
  }
  expect(clusterRefusal(early, formed)).toMatch(/later incarnation/);
  expect(clusterRefusal(late, early)).toMatch(/later incarnation/);
  expect(clusterRefusal(late, nextClusterId(formed, 20, "cc"))).toMatch(/the same moment/);
});
