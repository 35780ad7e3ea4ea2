import { jobEntry, type PlanEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PLAN_ENTRIES, SEALED } from "../../cluster-version.ts";
import { type LogCommand, ReplicatedControl } from "../../replicated-control.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";
import type { CommitPlanCommand } from "./commands.ts";
import { logPlan, readPlan } from "./logged-plan.ts";

const ENTRIES: readonly PlanEntry[] = [
  jobEntry("job_a"),
  { kind: "recovery", jobId: "job_b" },
  replicaEntry("m@1+recovery"),
];

const PLAN: CommitPlanCommand = {
  type: "plan.commit",
  atMs: 1,
  basedOnIndex: 1,
  overcommitRatio: 1,
  acknowledgeMs: 1,
  admitted: [],
  unsatisfiable: [],
  expired: [],
  line: [{ jobId: "job_b" }],
  starts: ENTRIES.map((entry) => ({ entry, placements: [] })),
  preemptions: ENTRIES.map((forEntry) => ({ victimId: "job_c", forEntry })),
};

const raise = (version: number): LogCommand => ({ type: "version.raise", atMs: 0, version });

function clusterOf(version: number): PlannedCluster {
  const control = new ReplicatedControl();
  control.apply(raise(version), 1);
  const cluster = new PlannedCluster(control);
  cluster.join("a", { gpuCount: 1 });
  cluster.submit(1, { resources: { gpu_count: 1, priority: -1 } });
  cluster.run(1);
  cluster.submit(2, { resources: { gpu_count: 1, priority: 1 } });
  return cluster;
}

/** A plan that evicts the job 1 for the job 2, and whose only start has no room. */
function evict(cluster: PlannedCluster, loggedAt: number) {
  const plan = {
    ...PLAN,
    atMs: cluster.atMs,
    admitted: [jobId(2)],
    line: [],
    starts: [{ entry: jobEntry(jobId(2)), placements: [{ nodeId: "a", devices: [0] }] }],
    preemptions: [{ victimId: jobId(1), forEntry: jobEntry(jobId(2)) }],
  };
  return cluster.do({ ...logPlan(plan, loggedAt) });
}

test.each([SEALED, PLAN_ENTRIES])("logged plan: version %i reads what it wrote", (version) => {
  const logged = JSON.parse(JSON.stringify(logPlan(PLAN, version)));
  expect(readPlan(logged)).toEqual(PLAN);
});

test("logged plan: an earlier line names a recovering job with a suffix", () => {
  const line = [{ jobId: "job_b+recovery", startAtMs: 3 }, { jobId: "job_a" }];
  expect(readPlan({ ...PLAN, line }).line).toEqual([
    { jobId: "job_b", startAtMs: 3 },
    { jobId: "job_a" },
  ]);
});

test("logged plan: replies and records of an earlier version keep its form", () => {
  const cluster = clusterOf(SEALED);
  const refused = [{ jobId: jobId(2), why: "over_capacity" }];
  expect(evict(cluster, SEALED)).toEqual({ ok: true, refused });
  expect(cluster.job(1).leaving).toEqual({ why: "preempt", forJobId: jobId(2) });
  const { running } = cluster.view().snapshot;
  expect(running[0]?.evicting?.forEntry).toEqual(jobEntry(jobId(2)));
});

test("logged plan: one proposed before the version rose is applied after it", () => {
  const cluster = clusterOf(PLAN_ENTRIES);
  const refused = [{ entry: jobEntry(jobId(2)), why: "over_capacity" }];
  expect(evict(cluster, SEALED)).toEqual({ ok: true, refused });
  expect(cluster.job(1).leaving).toEqual({ why: "preempt", forEntry: jobEntry(jobId(2)) });
});
