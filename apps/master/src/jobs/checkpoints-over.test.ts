import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { checkpointsOver } from "./checkpoints-over.ts";

const DAY_MS = 24 * 3_600_000;

test("what a job has saved is over with its last task; of a failed one after six days, of an unknown one never", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  const ids = [1, 2, 3, 4, 9].map(jobId);
  for (const n of [1, 2, 3]) {
    cluster.submit(n);
    cluster.run(n);
  }
  cluster.submit(4);
  cluster.do({ type: "job.request", jobId: jobId(4), request: "suspend" });
  const over = (afterMs = 0) => checkpointsOver(cluster.control.state, ids, cluster.atMs + afterMs);
  expect(over(9 * DAY_MS)).toBeUndefined();
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.report(2, "exited", { reason: "ExitCode", endedAtMs: 1 });
  cluster.do({ type: "job.request", jobId: jobId(3), request: "cancel" });
  expect(over()).toEqual({ jobIds: [jobId(1)], emptyJobIds: [jobId(2)] });
  cluster.report(3, "exited", { endedAtMs: 1 });
  expect(over()).toEqual({ jobIds: [jobId(1), jobId(3)], emptyJobIds: [jobId(2)] });
  const late = { jobIds: [1, 2, 3].map(jobId), emptyJobIds: [] };
  expect(over(6 * DAY_MS)).toEqual(late);
});
