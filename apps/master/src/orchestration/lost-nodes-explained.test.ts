// holds: sched-explain

import { runToEnd } from "@heddle/base/async/steps";
import type { ControlCommand } from "@heddle/control/command";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { VolatileControl } from "../../test/test-master.ts";
import { JobFigures } from "../metrics/job-figures.ts";
import { viewExplanation } from "./scheduling/explanation-view.ts";
import { Scheduling } from "./scheduling/scheduling.ts";

const FENCE_MS = 150_000;

/** Two nodes of four simulated GPUs; a job of two tasks ran on both, and the second is lost. */
async function lostNode(change: object) {
  const control = new VolatileControl();
  const atMs = Date.now();
  const act = (command: object) => control.propose({ atMs, ...command } as ControlCommand);
  for (const id of ["a", "b"]) {
    await act({ type: "node.join", offer: nodeOffer(id, { gpuCount: 4, simulated: true }) });
  }
  const spec = jobSpec({ tasks: 2, resources: { gpu_count: 8 }, ...change });
  await act({ type: "job.submit", jobId: jobId(1), spec });
  const placements = ["a", "b"].map((nodeId) => ({ nodeId, devices: [0, 1, 2, 3] }));
  await act({
    type: "plan.commit",
    overcommitRatio: 1,
    acknowledgeMs: 1e6,
    admitted: [jobId(1)],
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    starts: [{ entry: jobEntry(jobId(1)), placements }],
  });
  for (const phase of ["leased", "running"]) {
    for (const [rank, nodeId] of ["a", "b"].entries()) {
      const reports = [{ jobId: jobId(1), attempt: 1, rank, phase }];
      await act({ type: "tasks.report", nodeId, reports });
    }
  }
  await act({ type: "node.lost", nodeIds: ["b"], fencedAtMs: atMs + FENCE_MS });
  const scheduling = new Scheduling(control);
  const explanation = async (n: number) => {
    const made = await scheduling.explainer.explain(control.state.jobs.get(jobId(n))!);
    return made && viewExplanation(made);
  };
  return { control, scheduling, act, atMs, explanation };
}

test("explanation: a retrying job waits until the lost node is fenced, with the time", async () => {
  const { control, act, atMs, explanation } = await lostNode({});
  expect(control.state.jobs.get(jobId(1))?.state).toBe("retrying");
  expect(
    (await explanation(1))?.blockers.map(({ reason, requested }) => [reason, requested]),
  ).toEqual([
    ["NodesLost", 1],
    ["PreemptionInProgress", 1],
  ]);
  const report = { jobId: jobId(1), attempt: 1, rank: 0, phase: "exited", exit: { endedAtMs: 1 } };
  await act({ type: "tasks.report", nodeId: "a", reports: [report] });
  expect((await explanation(1))?.blockers).toMatchObject([
    { reason: "NodesLost", resource: "tasks_to_fence", requested: 1, limit: 2 },
  ]);
  // Without the lost node there are no eight GPUs.
  expect((await explanation(1))?.start_estimate).toEqual({
    earliest: null,
    likely: null,
    latest: null,
  });
  await act({ type: "node.join", offer: nodeOffer("c", { gpuCount: 4 }) });
  const likely = Date.parse((await explanation(1))?.start_estimate.likely ?? "");
  expect(likely).toBe(atMs + FENCE_MS);
});

test("explanation: a recovering job waits for the fence, then for a place", async () => {
  const { control, act, explanation } = await lostNode({ failure_tolerance: 1 });
  expect(control.state.jobs.get(jobId(1))?.state).toBe("recovering");
  expect((await explanation(1))?.blockers).toMatchObject([{ reason: "NodesLost", requested: 1 }]);
  const { lostIndex } = control.state.nodes.get("b")!;
  await act({ type: "node.fenced", losses: [{ nodeId: "b", lostIndex }] });
  expect((await explanation(1))?.blockers).toMatchObject([
    { reason: "InsufficientGpu", requested: 4, free: 0, limit: 4 },
    { reason: "NodesLost", message: "NodesLost: 1 of 2 nodes that the job could run on are lost" },
  ]);
});

test("metrics: simulated GPUs are included in the total", async () => {
  const { control, scheduling, atMs } = await lostNode({});
  const { gpus } = runToEnd(new JobFigures(control, scheduling).figures(atMs));
  expect(gpus).toMatchObject({ total: 4, simulated: 4 });
});
