// holds: train-unknown

import { expect, test } from "vitest";
import { jobSpec, nodeOffer } from "../testing/specs.ts";
import { offerFaults } from "./offer-faults.ts";
import type { NodeOffer, NodeRecord } from "./records.ts";

const TRAINER = { executors: ["training"], algorithms: ["ppo"], environments: ["CartPole-v1"] };

function faults(
  job: { readonly algorithm?: string; readonly config?: Record<string, unknown> },
  ...workers: readonly (Partial<NodeOffer> & Partial<Pick<NodeRecord, "state">>)[]
) {
  const spec = jobSpec({ command: undefined, config: {}, ...job });
  const nodes = workers.map(({ state = "ready", ...offer }, i): [string, NodeRecord] => [
    `n${i}`,
    {
      offer: nodeOffer(`n${i}`, offer),
      state,
      joinedAtMs: 0,
      changedIndex: 1,
      quarantined: [],
      serving: [],
    },
  ]);
  return offerFaults(spec, new Map(nodes)).map(({ param }) => param);
}

const sac = { algorithm: "sac" };
const atlantis = { algorithm: "ppo", config: { env: "Atlantis-v1" } };

test("offer: what no worker has is a fault of its field", () => {
  expect(faults(sac, TRAINER)).toEqual(["algorithm"]);
  expect(faults(atlantis, TRAINER)).toEqual(["config.env"]);
  expect(faults({ algorithm: "ppo" }, TRAINER)).toEqual([]);
});

test("offer: a job without an algorithm needs none", () => {
  expect(faults({}, TRAINER)).toEqual([]);
});

test("offer: one worker is enough, also one that is lost for now", () => {
  const other = { ...TRAINER, algorithms: ["sac"], environments: ["Atlantis-v1"] };
  expect(faults(sac, TRAINER, { ...other, state: "lost" })).toEqual([]);
  expect(faults(atlantis, TRAINER, { ...other, state: "lost" })).toEqual([]);
});

test("offer: no fault where no worker trains, or one has not reported its offer", () => {
  expect(faults(sac)).toEqual([]);
  expect(faults(sac, { executors: ["process"] })).toEqual([]);
  const silent = { executors: ["training"], algorithms: undefined, environments: undefined };
  expect(faults(sac, TRAINER, silent)).toEqual([]);
  expect(faults(atlantis, TRAINER, { ...silent, algorithms: ["ppo"] })).toEqual([]);
});
