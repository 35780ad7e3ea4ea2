// holds: bound-cycle-steps

import { runToEnd, type Steps } from "@heddle/base/async/steps";
import { afterEach, expect, it } from "vitest";
import { Ledger } from "./cluster/ledger.ts";
import { capacityBlockers } from "./cycle/capacity-blockers.ts";
import { gangOf, snapshotFrom } from "./cycle/scheduling-cycle.ts";
import { explain } from "./explain/explain.ts";
import { Satisfiability } from "./explain/satisfiability.ts";
import type { QueuedJob, RunningJob } from "./model.ts";
import { decide, decideInSteps } from "./schedule.ts";
import { HOUR_MS, input, node, queued, request, running } from "./testing/scenarios.ts";

const NODES = 10_000;
const GPUS = 8;
/** Reads or changes of a node's row: two passes over all nodes, and some more. */
const MAX_READS = 3 * NODES;
const COUNTED = ["fits", "copies", "take", "release", "setLesser"] as const;

const real = Object.fromEntries(COUNTED.map((name) => [name, Ledger.prototype[name]]));
afterEach(() => Object.assign(Ledger.prototype, real));

/** The maximum number of ledger operations in one step. */
function longestStep(steps: Steps<unknown>): number {
  let operations = 0;
  // Not a spy, which would keep the arguments of millions of calls.
  for (const name of COUNTED) {
    const counted = real[name] as (...args: unknown[]) => unknown;
    const count = function (this: Ledger, ...args: unknown[]) {
      operations++;
      return counted.apply(this, args);
    };
    Object.assign(Ledger.prototype, { [name]: count });
  }
  let longest = 0;
  for (let isDone = false; !isDone; ) {
    operations = 0;
    isDone = steps.next().done === true;
    longest = Math.max(longest, operations);
  }
  Object.assign(Ledger.prototype, real);
  return longest;
}

/** A full cluster: a job on each device, with different ends. */
function fullCluster(queue: readonly QueuedJob[]) {
  const nodes = Array.from({ length: NODES }, (_, at) => {
    return node(`n${at}`, { gpus: GPUS, rack: `r${at % 100}` });
  });
  const jobs: RunningJob[] = Array.from({ length: NODES * GPUS }, (_, at) => {
    const places = [{ nodeId: `n${at % NODES}`, devices: [Math.floor(at / NODES)] }];
    return running(`r${at}`, places, { maxRuntimeMs: HOUR_MS + at, qosLevel: "best_effort" });
  });
  return snapshotFrom(input({ nodes, running: jobs }, queue));
}

const large = (id: string, change: Partial<QueuedJob> = {}) =>
  queued(id, { tasks: 4_096, request: request({ gpus: 8 }), preemptible: false, ...change });

it.each([
  ["anywhere", {}],
  ["in one rack", { sameRack: true, tasks: 100 }],
  ["for one task", { tasks: 1 }],
])("steps: cycle and explanation of large jobs %s are bounded", (_, change) => {
  const queue = Array.from({ length: 4 }, (__, at) => large(`q${at}`, change));
  const snapshot = fullCluster(queue);
  expect(longestStep(decideInSteps(snapshot))).toBeLessThan(MAX_READS);
  const plan = decide(snapshot);
  expect(longestStep(explain(snapshot, plan, queue[3]!))).toBeLessThan(MAX_READS);
  const { neverFits } = Satisfiability.prototype;
  expect(longestStep(neverFits.call(new Satisfiability(), snapshot, queue[3]!))).toBeLessThan(
    MAX_READS,
  );
});

it("steps: what 10,000 nodes offer is read 1,024 nodes at a time", () => {
  const offers = [{ kind: "profile" as const, name: "b", labelPrefix: "can/" }];
  const job = queued("q", { request: request({ offers }) });
  const nodes = Array.from({ length: NODES }, (_, at) => {
    return node(`n${at}`, { labels: { "can/a": "", [`can/${at % 3}`]: "" } });
  });
  const { view, settings } = snapshotFrom(input({ nodes }, [job]));
  const { capacity } = view;
  const gang = runToEnd(gangOf({ settings, view }, job));
  const blockers = capacityBlockers(capacity, capacity, gang);
  let steps = 0;
  for (let at = blockers.next(); ; at = blockers.next()) {
    if (at.done) {
      expect(at.value).toMatchObject([{ wanted: "b", offered: ["0", "1", "2", "a"] }]);
      break;
    }
    steps++;
  }
  expect(steps).toBe(1 + Math.floor(NODES / 1_024));
});
