// holds: raft-flow-control

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Inflights } from "./inflights.ts";

describe("the window of appends in flight", () => {
  it("counts what was added and not freed, in any order of the frees", () => {
    const action = fc.oneof(fc.constant("add" as const), fc.nat(60));
    fc.assert(
      fc.property(fc.array(action, { maxLength: 80 }), (actions) => {
        const inflights = new Inflights(8, 50);
        let model: { index: number; bytes: number }[] = [];
        let next = 1;
        for (const what of actions) {
          if (what !== "add") {
            inflights.freeUpTo(what);
            model = model.filter(({ index }) => index > what);
          } else if (!inflights.full) {
            inflights.add(next, next % 13);
            model.push({ index: next, bytes: next % 13 });
            next++;
          }
          const bytes = model.reduce((sum, one) => sum + one.bytes, 0);
          expect(inflights.count).toBe(model.length);
          expect(inflights.full).toBe(model.length === 8 || bytes >= 50);
        }
      }),
    );
  });

  it("cannot be overfilled", () => {
    const inflights = new Inflights(1, 10);
    inflights.add(1, 1);
    expect(() => inflights.add(2, 1)).toThrow("inflights are full");
  });
});
