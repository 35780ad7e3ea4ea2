import { expect, test } from "vitest";
import { serverLostMs } from "./lost-node-loop.ts";

// holds: ps-watch
test.each([
  [30_000, 1_000, 10_000],
  [4_200, 1_000, 2_000],
  [2_400, 1_000, 1_920],
  [300, 20, 100],
])("parameter server: node_lost_ms %i, reports each %i ms: lost after %i", (lost, beat, after) => {
  expect(serverLostMs(lost, beat)).toBeCloseTo(after);
});
