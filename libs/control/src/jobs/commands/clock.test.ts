// holds: life-timers

import { expect, test } from "vitest";
import { FENCES_BY_LEADER } from "../../cluster-version.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";
import { nextDueMs } from "./clock.ts";

const WEEK_MS = 7 * 24 * 3_600_000;

const tickAt = (cluster: PlannedCluster, atMs: number) => cluster.do({ type: "clock.tick", atMs });
const dueMs = ({ control }: PlannedCluster) => nextDueMs(control.state, control.jobs);

function running(change: Record<string, unknown> = {}): PlannedCluster {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, change);
  cluster.run(1);
  return cluster;
}

/** A job on a node that is lost, in a cluster of that version. */
function onLostNode(version: number) {
  const cluster = running({ retry_limit: 0 });
  cluster.control.state.cluster.set("version", version);
  const fencedAtMs = cluster.atMs + 150_000;
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs });
  const phases = () => [...cluster.control.state.tasks.values()].map(({ phase }) => phase);
  return { cluster, fencedAtMs, phases };
}

test("clock: before FENCES_BY_LEADER a lost node's tasks end at the time of the loss", () => {
  const { cluster, fencedAtMs, phases } = onLostNode(FENCES_BY_LEADER - 1);
  tickAt(cluster, fencedAtMs - 1);
  expect(phases()).toEqual(["lost"]);
  // The cluster was upgraded meanwhile.
  cluster.control.state.cluster.set("version", FENCES_BY_LEADER);
  tickAt(cluster, fencedAtMs);
  expect(phases()).toEqual(["exited"]);
});

test("fencing: no clock ends the tasks of a lost node, however far it is set forward", () => {
  const { cluster, fencedAtMs, phases } = onLostNode(FENCES_BY_LEADER);
  tickAt(cluster, fencedAtMs + WEEK_MS);
  expect(phases()).toEqual(["lost"]);
  expect(cluster.fence()).toEqual({ ok: true });
  expect(phases()).toEqual(["exited"]);
  expect(cluster.control.state.nodes.get("a")).not.toHaveProperty("lostIndex");
});

test("fencing: an earlier loss of the node ends nothing of a later one", () => {
  const { cluster, phases } = onLostNode(FENCES_BY_LEADER);
  const lostIndex = () => cluster.control.state.nodes.get("a")?.lostIndex ?? 0;
  const losses = [{ nodeId: "a", lostIndex: lostIndex() }];
  cluster.join("a");
  expect(cluster.control.state.nodes.get("a")).not.toHaveProperty("lostIndex");
  cluster.do({ type: "node.fenced", losses });
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs + 1 });
  cluster.do({ type: "node.fenced", losses });
  expect(phases()).toEqual(["lost"]);
  cluster.fence();
  expect(phases()).toEqual(["exited"]);
});

test("fencing: refused before FENCES_BY_LEADER, as by masters that do not know it", () => {
  const { cluster, phases } = onLostNode(FENCES_BY_LEADER - 1);
  expect(() => cluster.fence()).toThrow(/does not know the log entry "node.fenced"/);
  expect(phases()).toEqual(["lost"]);
});

test("clock: an ended job is kept for seven days from its end, and no longer", () => {
  const cluster = running();
  cluster.report(1, "exited", { exitCode: 0, endedAtMs: cluster.atMs });
  const endedAtMs = cluster.job(1).endedAtMs!;
  expect(endedAtMs).toBeGreaterThan(0);
  tickAt(cluster, endedAtMs + WEEK_MS - 1);
  expect(cluster.control.state.jobs.has(jobId(1))).toBe(true);
  expect(dueMs(cluster)).toBe(endedAtMs + WEEK_MS);
  tickAt(cluster, endedAtMs + WEEK_MS);
  expect(cluster.control.state.jobs.has(jobId(1))).toBe(false);
  expect(dueMs(cluster)).toBeUndefined();
});

test("clock: a start that is not taken is given up when its time has passed", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1);
  cluster.plan();
  const due = cluster.job(1).dueMs!;
  expect(dueMs(cluster)).toBe(due);
  tickAt(cluster, due - 1);
  expect(cluster.job(1).state).toBe("scheduled");
  tickAt(cluster, due);
  expect(cluster.job(1).state).not.toBe("scheduled");
});
