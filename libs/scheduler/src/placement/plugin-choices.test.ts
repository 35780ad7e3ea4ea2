// holds: plugins-scheduler

import { expect, test } from "vitest";
import { schedule } from "../schedule.ts";
import { input, node, queued, request } from "../testing/scenarios.ts";

const nodes = [node("a", { gpus: 4 }), node("b", { gpus: 8 }), node("c", { gpus: 2 })];
const ranked = (...ranks: readonly (readonly [string, number])[]) =>
  ranks.map(([nodeId, rank]) => ({ nodeId, rank }));

/** The nodes of a job of one GPU a task with these choices. */
function placed(change: Parameters<typeof request>[0], strategy: string, tasks = 1) {
  const settings = { queues: { default: { strategy: strategy as "binpack" } } };
  const job = queued("job", { tasks, request: request({ gpus: 1, ...change }) });
  const { starts, pending } = schedule(input({ nodes }, [job], { settings }));
  return { nodes: starts[0]?.placements.map(({ nodeId }) => nodeId), pending };
}

test.each(["binpack", "spread", "fragmentation"])(
  "%s: nodes of higher ranks come first, whatever the strategy prefers",
  (strategy) => {
    for (const best of ["a", "b", "c"]) {
      expect(placed({ nodeRanks: ranked([best, 1]) }, strategy).nodes).toEqual([best]);
    }
    const byRank = placed({ nodeRanks: ranked(["c", 2], ["a", 1], ["b", 0]) }, strategy, 4);
    expect(byRank.nodes).toEqual(["c", "c", "a", "a"]);
    expect(placed({ nodeRanks: ranked(["a", 5], ["b", 5], ["c", 5]) }, strategy).nodes).toEqual(
      placed({}, strategy).nodes,
    );
  },
);

test("choices of plugins: excluded nodes take no task; without any the job waits", () => {
  expect(placed({ excludedNodes: ["b", "c"] }, "spread").nodes).toEqual(["a"]);
  const nowhere = placed({ excludedNodes: ["a", "b", "c"] }, "spread");
  expect(nowhere.nodes).toBeUndefined();
  expect(JSON.stringify(nowhere.pending)).toContain('"plugin"');
});

test("choices of plugins: a rank that is no whole number in its bounds is refused", () => {
  for (const rank of [-1, 0.5, 100_001, Number.NaN]) {
    expect(() => placed({ nodeRanks: ranked(["a", rank]) }, "spread")).toThrow(RangeError);
  }
});
