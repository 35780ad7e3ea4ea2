import { expect, test } from "vitest";
import { queued } from "../testing/scenarios.ts";
import { levelOf } from "./precedence.ts";

test("level: qos precedes serving, which precedes priority, without overlaps", () => {
  const levels = (["best_effort", "standard", "guaranteed"] as const).flatMap((qosLevel) =>
    (["training", "serving"] as const).flatMap((kind) =>
      [-1_000, -999, 0, 999, 1_000].map((priority) =>
        levelOf(queued("j", { qosLevel, kind, priority })),
      ),
    ),
  );
  expect(levels).toEqual([...new Set(levels)].sort((a, b) => a - b));
});

test.each([1_001, -1_001])("level: priority %i is refused", (priority) => {
  expect(() => levelOf(queued("j", { priority }))).toThrow(RangeError);
});
