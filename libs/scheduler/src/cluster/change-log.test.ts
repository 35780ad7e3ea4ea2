import fc from "fast-check";
import { expect, it } from "vitest";
import { ChangeLog } from "./change-log.ts";

const NODES = 200;

it("change log: each changed node once, or that a full scan is cheaper", () => {
  const changes = fc.array(fc.integer({ min: 0, max: NODES - 1 }), { maxLength: 4_000 });
  fc.assert(
    fc.property(changes, fc.nat(4_000), (pushed, from) => {
      const log = new ChangeLog(NODES);
      for (const node of pushed) log.push(node);
      expect(log.position).toBe(pushed.length);
      const position = Math.min(from, pushed.length);
      const wanted = new Set(pushed.slice(position));
      const reported = log.since(position);
      if (reported)
        expect([...reported].sort((a, b) => a - b)).toEqual([...wanted].sort((a, b) => a - b));
      else expect(wanted.size > NODES / 4 || pushed.length - position > NODES).toBe(true);
    }),
    { numRuns: 200 },
  );
});
