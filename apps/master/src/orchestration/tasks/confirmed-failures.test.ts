// holds: life-root-cause

import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { confirmedFailures } from "./confirmed-failures.ts";

test("failure: confirmed after a second and all other nodes' reports", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, { tasks: 3, resources: { gpu_count: 3 } });
  cluster.run(1);
  const tasks = [...cluster.control.state.tasks.values()];
  const [one = "", two = "", own = ""] = tasks.map(({ nodeId }) => nodeId);
  const exit = { reason: "ExitCode", endedAtMs: 1 };
  const reports = [{ jobId: jobId(1), attempt: 1, rank: 2, phase: "exited", exit }];
  cluster.do({ type: "tasks.report", nodeId: own, reports, statusTimeoutMs: 60_000 });
  const suspectedMs = cluster.atMs;
  const confirmed = (live: Record<string, number>) =>
    confirmedFailures(cluster.control, (nodeId) => live[nodeId]);
  const late = suspectedMs + 1_000;
  expect(confirmed({ [one]: late, [two]: late - 1 })).toEqual([]);
  expect(confirmed({ [one]: late, [own]: late })).toEqual([]);
  const entries = [{ jobId: jobId(1), attempt: 1, suspectedMs }];
  expect(confirmed({ [one]: late, [two]: late })).toEqual(entries);
  cluster.do({ type: "jobs.confirmFailures", entries });
  expect(cluster.job(1).state).toBe("failed");
  expect(confirmed({ [one]: late, [two]: late })).toEqual([]);
});
