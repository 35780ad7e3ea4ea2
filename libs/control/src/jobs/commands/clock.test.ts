// holds: life-timers

import { expect, test } from "vitest";
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

test("clock: a lost node's tasks end when its lease expires, and not before", () => {
  const cluster = running({ retry_limit: 0 });
  const fencedAtMs = cluster.atMs + 150_000;
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs });
  const phases = () => [...cluster.control.state.tasks.values()].map(({ phase }) => phase);
  tickAt(cluster, fencedAtMs - 1);
  expect(phases()).toEqual(["lost"]);
  tickAt(cluster, fencedAtMs);
  expect(phases()).toEqual(["exited"]);
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
