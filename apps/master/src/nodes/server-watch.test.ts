// holds: life-leader-knowledge, ps-watch

import type { Log } from "@heddle/observability/logger";
import { beforeEach, expect, test } from "vitest";
import { NO_DIVISIONS, replicaOn } from "../../test/fixtures.ts";
import { VolatileControl } from "../../test/test-master.ts";
import type { NodeView } from "./node-directory.ts";
import { ServerWatch, serverLostMs } from "./server-watch.ts";

const silentLog: Log = { info: () => {}, warn: () => {}, error: () => {} };

let control: VolatileControl;
let nodes: Map<string, NodeView>;
let nowMs: number;
let watch: ServerWatch;
beforeEach(() => {
  control = new VolatileControl();
  nodes = new Map();
  nowMs = 1_000_000;
  watch = new ServerWatch({
    control,
    directory: {
      nodes: () => [...nodes.values()],
      silentMs: () => raise(),
      pull: () => raise(),
      replicasOf: () => [],
      workersLost: 0,
      divisions: NO_DIVISIONS,
    },
    clock: { wallMs: () => nowMs, monotonicMs: () => nowMs },
    log: silentLog,
    serverLostMs: 10_000,
  });
});

function raise(): never {
  throw new Error("the watch pulls nothing");
}

function attach(id: string, kind: NodeView["kind"], change: Partial<NodeView> = {}) {
  nodes.set(id, { ...replicaOn(id, "d", "ready"), kind, lastSeenMs: nowMs, ...change });
}

/** Checks every second for this long; attached nodes report all the time. */
async function pass(ms: number) {
  for (const end = nowMs + ms; nowMs < end; ) {
    nowMs += 1_000;
    for (const [id, view] of nodes) nodes.set(id, { ...view, lastSeenMs: nowMs });
    await watch.check();
  }
}

const states = () =>
  Object.fromEntries([...control.state.servers].map(([id, { state }]) => [id, state]));

test("parameter server: joins once, and is lost 10 s after it left", async () => {
  attach("w", "worker");
  attach("p", "parameter-server", { address: "p:7" });
  await pass(2_000);
  expect(control.state.servers.get("p")).toMatchObject({ address: "p:7", state: "ready" });
  const index = control.appliedIndex;
  await pass(5_000);
  expect(control.appliedIndex).toBe(index);
  nodes.delete("p");
  await pass(9_000);
  expect(states()).toEqual({ p: "ready" });
  await pass(2_000);
  expect(states()).toEqual({ p: "lost" });
  attach("p", "parameter-server");
  await pass(1_000);
  expect(states()).toEqual({ p: "ready" });
});

test("parameter server: its restart is recorded at once", async () => {
  attach("w", "worker");
  attach("p", "parameter-server", { incarnation: "1" });
  await pass(1_000);
  attach("p", "parameter-server", { incarnation: "2" });
  await pass(1_000);
  expect(control.state.servers.get("p")).toMatchObject({ incarnation: "2", state: "ready" });
});

test("parameter server: a stale stream does not restore it after an election", async () => {
  attach("w", "worker");
  attach("p", "parameter-server", { incarnation: "1" });
  await pass(1_000);
  watch.reset();
  const server = { id: "p", name: "p", address: "p:1", incarnation: "2" };
  await control.propose({ type: "server.join", atMs: nowMs, server });
  for (let pass = 0; pass < 5; pass++) {
    nowMs += 1_000;
    await watch.check();
  }
  expect(control.state.servers.get("p")?.incarnation).toBe("2");
  await pass(1_000);
  expect(control.state.servers.get("p")?.incarnation).toBe("1");
});

test("parameter server: none is lost while no worker reports either", async () => {
  attach("w", "worker");
  attach("p", "parameter-server");
  await pass(1_000);
  nodes.clear();
  await pass(60_000);
  expect(states()).toEqual({ p: "ready" });
  attach("w", "worker");
  await pass(1_000);
  expect(states()).toEqual({ p: "lost" });
});

test.each([
  [30_000, 1_000, 10_000],
  [4_200, 1_000, 2_000],
  [2_400, 1_000, 1_920],
  [300, 20, 100],
])("parameter server: node_lost_ms %i, reports each %i ms: lost after %i", (lost, beat, after) => {
  expect(serverLostMs(lost, beat)).toBeCloseTo(after);
});
