// holds: life-checkpoints-kept

import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { expiredCheckpoints } from "./expired-checkpoints.ts";

const DAY_MS = 24 * 3_600_000;

test("checkpoints: expire with the last task; a failed job's after six days", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  const ids = [1, 2, 3, 4, 9].map(jobId);
  for (const n of [1, 2, 3]) {
    cluster.submit(n);
    cluster.run(n);
  }
  cluster.submit(4);
  cluster.do({ type: "job.request", jobId: jobId(4), request: "suspend" });
  const over = (afterMs = 0) =>
    expiredCheckpoints(cluster.control.state, ids, cluster.atMs + afterMs);
  const unknown = { unknownJobIds: [jobId(9)] };
  const none = { jobIds: [], emptyJobIds: [] };
  expect(over(9 * DAY_MS)).toEqual({ ...none, ...unknown });
  const known = ids.slice(0, -1);
  expect(expiredCheckpoints(cluster.control.state, known, cluster.atMs)).toBeUndefined();
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.report(2, "exited", { reason: "ExitCode", endedAtMs: 1 });
  cluster.do({ type: "job.request", jobId: jobId(3), request: "cancel" });
  expect(over()).toEqual({ jobIds: [jobId(1)], emptyJobIds: [jobId(2)], ...unknown });
  cluster.report(3, "exited", { endedAtMs: 1 });
  expect(over()).toEqual({ jobIds: [jobId(1), jobId(3)], emptyJobIds: [jobId(2)], ...unknown });
  const late = { jobIds: [1, 2, 3].map(jobId), emptyJobIds: [], ...unknown };
  expect(over(6 * DAY_MS)).toEqual(late);
});
