// holds: sec-revoked

import { expect, test } from "vitest";
import { RevokedNodes } from "./revoked-nodes.ts";

test("revoked nodes: the latest revocation of a node counts, from whichever master", () => {
  const revoked = new RevokedNodes();
  const adds = [2_000, 1_000, 2_000].map((atMs) => revoked.add([["worker/w", atMs]]));
  expect(adds).toEqual([true, false, false]);
  const ends = (role: "worker" | "parameter-server", name: string, fromMs: number) =>
    revoked.has({ role, name }, fromMs);
  expect(ends("worker", "w", 2_000)).toBe(true);
  expect(ends("worker", "w", 2_001)).toBe(false);
  expect(ends("worker", "other", 2_000)).toBe(false);
  expect(ends("parameter-server", "w", 2_000)).toBe(false);
});

test("revoked nodes: the earliest of too many is forgotten", () => {
  const revoked = new RevokedNodes();
  for (let at = 10_000; at >= 0; at--) revoked.add([[`worker/n${at}`, 1_000 + at]]);
  const isKept = (at: number) => revoked.has({ role: "worker", name: `n${at}` }, 0);
  expect([0, 1, 10_000].map(isKept)).toEqual([false, true, true]);
});
