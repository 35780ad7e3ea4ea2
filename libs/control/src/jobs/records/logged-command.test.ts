import { jobEntry, type PlanEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { LIMITED_TASKS, PLAN_ENTRIES, SEALED, STANDARD_TERMS } from "../../cluster-version.ts";
import { type LogCommand, ReplicatedControl } from "../../replicated-control.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";
import type { CommitPlanCommand, JobsCommand, LoggedJobsCommand } from "./commands.ts";
import { logCommand, readCommand } from "./logged-command.ts";
import { reservationOf } from "./renamed-fields.ts";

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
  ranked: [{ jobId: "job_b" }],
  reservation: undefined,
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
    ranked: [],
    starts: [{ entry: jobEntry(jobId(2)), placements: [{ nodeId: "a", devices: [0] }] }],
    preemptions: [{ victimId: jobId(1), forEntry: jobEntry(jobId(2)) }],
  };
  return cluster.do({ ...logCommand(plan, loggedAt) });
}

/** Commands with names that changed, and the name in the log of versions before STANDARD_TERMS. */
const RENAMED: readonly (readonly [string, JobsCommand])[] = [
  ["line", PLAN],
  ["wordMs", { type: "tasks.report", atMs: 1, nodeId: "a", reports: [], statusTimeoutMs: 9 }],
  ["jobs.judge", { type: "jobs.confirmFailures", atMs: 1, entries: [] }],
  [
    "wellDevices",
    {
      type: "node.resume",
      atMs: 1,
      nodeId: "a",
      healthyDevices: [1],
      healthyAsOf: { incarnation: "i", reading: 2 },
    },
  ],
];

test.each([SEALED, PLAN_ENTRIES, LIMITED_TASKS, STANDARD_TERMS])(
  "logged command: version %i reads what it wrote",
  (version) => {
    for (const [earlierName, command] of RENAMED) {
      const text = JSON.stringify(logCommand(command, version));
      expect(text.includes(`"${earlierName}"`), text).toBe(version < STANDARD_TERMS);
      expect(readCommand(JSON.parse(text) as LoggedJobsCommand)).toEqual(command);
    }
  },
);

test("logged plan: an earlier line names a recovering job with a suffix", () => {
  const line = [{ jobId: "job_b+recovery", startAtMs: 3 }, { jobId: "job_a" }];
  const { ranked: _, ...plan } = PLAN;
  expect(readCommand({ ...plan, line })).toMatchObject({
    ranked: [{ jobId: "job_b", startAtMs: 3 }, { jobId: "job_a" }],
  });
});

test("records: fields of an earlier version count until they are written again", () => {
  const cluster = clusterOf(LIMITED_TASKS);
  const ranked = [{ jobId: jobId(2), startAtMs: 5 }];
  const rank = (change: Partial<CommitPlanCommand>) =>
    cluster.do({ ...PLAN, admitted: [jobId(2)], starts: [], preemptions: [], ranked, ...change });
  rank({});
  const earlier = { promisedStartMs: 5, placeInLine: 0 };
  expect(cluster.job(2)).toMatchObject(earlier);
  cluster.control.apply(raise(STANDARD_TERMS), cluster.control.index + 1);
  rank({});
  expect(cluster.job(2)).toMatchObject(earlier);
  expect(reservationOf(cluster.job(2))).toEqual({ startMs: 5, rank: 0 });
  rank({ ranked: [{ jobId: jobId(2), startAtMs: 6 }] });
  expect(cluster.job(2)).toMatchObject({ reservedStartMs: 6, reservationRank: 0 });
  for (const name of Object.keys(earlier)) expect(cluster.job(2)).not.toHaveProperty(name);
  expect([...cluster.control.jobs.ranked]).toEqual([jobId(2)]);
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
