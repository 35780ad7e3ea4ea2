import fc from "fast-check";
import { expect, test } from "vitest";
import { ShortLivedSet } from "./short-lived-set.ts";

test("short-lived set: has the members that were added and not removed", () => {
  const steps = fc.array(fc.oneof(fc.constant("add" as const), fc.nat(40)), { maxLength: 200 });
  const property = fc.property(steps, (asked) => {
    const set = new ShortLivedSet<number>();
    const removals: (() => void)[] = [];
    const wanted = new Set<number>();
    for (const step of asked) {
      if (step === "add") {
        wanted.add(removals.length);
        removals.push(set.add(removals.length));
      } else if (removals.length > 0) {
        const member = step % removals.length;
        // Some are removed twice.
        removals[member]!();
        wanted.delete(member);
      }
      expect(new Set(set)).toEqual(wanted);
      expect(set.size).toBe(wanted.size);
    }
  });
  fc.assert(property);
});

test("short-lived set: of equal members each is removed alone", () => {
  const set = new ShortLivedSet<string>();
  const remove = set.add("same");
  set.add("same");
  remove();
  remove();
  expect([...set]).toEqual(["same"]);
});
