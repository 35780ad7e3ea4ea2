// holds: serving-priorities

import fc from "fast-check";
import { expect, test } from "vitest";
import {
  agedPriority,
  CALL_PRIORITIES,
  outranks,
  priorityNumber,
  priorityOf,
} from "./call-priority.ts";

const priority = fc.constantFrom(...CALL_PRIORITIES);
const later = fc.nat(100);
/** A call that waits as long counts as one priority higher. */
const AGING_MS = 30_000;

test("call priority: numbers keep their priority, and none within it outranks another", () => {
  fc.assert(
    fc.property(priority, later, priority, later, (a, laterA, b, laterB) => {
      const [x, y] = [priorityNumber(a, laterA), priorityNumber(b, laterB)];
      expect(priorityOf(x)).toBe(a);
      const isHigher = CALL_PRIORITIES.indexOf(a) > CALL_PRIORITIES.indexOf(b);
      expect(x > y).toBe(isHigher || (a === b && laterA < laterB));
      if (!isHigher) expect(outranks(x, y)).toBe(false);
    }),
  );
});

test("call priority: it rises with the wait, up to the highest, and never falls", () => {
  fc.assert(
    fc.property(priority, later, fc.nat(10 * AGING_MS), fc.nat(AGING_MS), (p, l, wait, more) => {
      const number = priorityNumber(p, l);
      const aged = agedPriority(number, wait);
      expect(aged).toBeGreaterThanOrEqual(number);
      expect(agedPriority(number, wait + more)).toBeGreaterThanOrEqual(aged);
      expect(aged).toBeLessThanOrEqual(priorityNumber("interactive"));
      expect(outranks(priorityNumber("interactive"), agedPriority(number, 2 * AGING_MS))).toBe(
        false,
      );
    }),
  );
});
