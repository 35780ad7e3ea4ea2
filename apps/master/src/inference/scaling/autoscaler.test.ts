// holds: serving-idle-unload

import type { ReplicaPhase } from "@heddle/contracts/engine";
import { createLogger } from "@heddle/observability/logger";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DEPLOYMENT, MODEL, replicaOn } from "../../../test/fixtures.ts";
import { VolatileControl } from "../../../test/test-master.ts";
import { Autoscaler } from "./autoscaler.ts";

const IDLE_MS = 1_000;
const KEY = DEPLOYMENT.spec.key;

let control: VolatileControl;
let autoscaler: Autoscaler;
let phases: ReplicaPhase[];
let queued: number;
let nowMs: number;

/** The leader, whose own callers have been quiet for long. */
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  [phases, queued, nowMs] = [[], 0, 0];
  control = new VolatileControl();
  const scaling = {
    min: 0,
    max: 1,
    idleMs: IDLE_MS,
    targetQueue: 4,
    targetTtftMs: 1_000,
    coolDownMs: 0,
  };
  const deployment = { ...DEPLOYMENT, replicas: 0, scaling };
  await control.propose({ type: "model.register", atMs: 0, model: MODEL, deployment });
  autoscaler = new Autoscaler({
    control,
    dispatch: { loadOf: () => ({ queued, ttftMs: undefined }) },
    directory: {
      replicasOf: () =>
        phases.flatMap((phase) =>
          replicaOn("w", KEY, phase).replicas.map((each) => ({
            ...each,
            load: { ...each.load, running: 0, waiting: 0 },
          })),
        ),
    },
    clock: { wallMs: () => nowMs, monotonicMs: () => nowMs },
    log: createLogger({ service: "test", level: "silent" }),
  });
  await pass(10 * IDLE_MS);
});

afterEach(() => {
  autoscaler.close();
  vi.useRealTimers();
});

async function pass(ms: number): Promise<void> {
  for (const endMs = nowMs + ms; nowMs < endMs; ) {
    nowMs += 50;
    await vi.advanceTimersByTimeAsync(50);
  }
}

const wanted = () => control.state.deployments.get(KEY)?.replicas;

test("autoscaler: a replica that another master's call woke stays until it was idle", async () => {
  const change = { deployment: KEY, from: 0, replicas: 1, reason: "a call waits elsewhere" };
  await control.propose({ type: "deployment.scale", atMs: nowMs, ...change });
  await pass(IDLE_MS / 2);
  expect(wanted()).toBe(1);
  phases = ["loading"];
  await pass(30 * IDLE_MS);
  expect(wanted()).toBe(1);
  phases = ["ready"];
  await pass(IDLE_MS / 2);
  expect(wanted()).toBe(1);
  await pass(IDLE_MS);
  expect(wanted()).toBe(0);
});

test("autoscaler: a call that waits at this master wakes a replica", async () => {
  expect(wanted()).toBe(0);
  queued = 1;
  await pass(IDLE_MS / 2);
  expect(wanted()).toBe(1);
});
