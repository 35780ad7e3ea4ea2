import { expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

const states = (cluster: PlannedCluster, ...jobs: number[]) =>
  jobs.map((n) => cluster.job(n).state);

test("dependents: all that fail in one command fail theirs, transitively", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  for (const n of [1, 2]) cluster.submit(n);
  cluster.submit(3, { dependencies: ["n1"] });
  cluster.submit(4, { dependencies: ["n2"] });
  cluster.submit(5, { dependencies: ["n4"] });
  const unsatisfiable = [1, 2].map((n) => ({ jobId: jobId(n), message: "never" }));
  cluster.do({
    type: "plan.commit",
    basedOnIndex: 0,
    overcommitRatio: 1,
    acknowledgeMs: 1_000,
    admitted: [],
    starts: [],
    preemptions: [],
    expired: [],
    unsatisfiable,
  });
  expect(states(cluster, 1, 2, 3, 4, 5)).toEqual(Array(5).fill("failed"));
  expect(cluster.job(5).failure).toMatchObject({
    reason: "DependencyFailed",
    message: `the job ${jobId(4)}, on which it depends, is failed`,
  });
});

test("request: refused where the job has changed since the given version", () => {
  const cluster = new PlannedCluster();
  cluster.submit(1);
  const { changedIndex } = cluster.job(1);
  for (const ifIndex of [changedIndex - 1, changedIndex + 1]) {
    const reply = cluster.do({ type: "job.request", jobId: jobId(1), request: "cancel", ifIndex });
    expect(reply).toMatchObject({ ok: false, code: "precondition_failed" });
  }
  const request = { type: "job.request", jobId: jobId(1), request: "cancel" };
  expect(cluster.do({ ...request, ifIndex: changedIndex })).toEqual({ ok: true });
  expect(states(cluster, 1)).toEqual(["cancelled"]);
});

const ID = "a".repeat(64);

test("join: a token is valid once, for its role, until it expires", () => {
  const cluster = new PlannedCluster();
  const join = { role: "worker", name: "w", expiresAtMs: 50_000 };
  const use = (atMs: number, role = "worker") =>
    cluster.do({ type: "join.use", atMs, id: ID, role }).ok;
  expect(cluster.do({ type: "join.create", atMs: 1_000, id: ID, join })).toEqual({ ok: true });
  expect([use(50_000), use(49_999, "master"), use(49_999), use(49_999)]).toEqual([
    false,
    false,
    true,
    false,
  ]);
});
