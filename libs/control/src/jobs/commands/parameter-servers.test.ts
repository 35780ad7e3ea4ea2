// holds: ps-placement

import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import { schedule } from "@heddle/scheduler/schedule";
import { beforeEach, expect, test } from "vitest";
import { ReplicatedControl } from "../../replicated-control.ts";
import { newestControl } from "../../testing/newest-control.ts";
import { JobIndex } from "../index/job-index.ts";
import type { JobsCommand, TaskReportEntry } from "../records/commands.ts";
import { algorithmFault } from "../records/task-request.ts";
import { schedulingInput } from "../scheduling/scheduling-input.ts";
import { shardFaults, shardsOn } from "../scheduling/shard-places.ts";
import { indexView } from "../testing/index-view.ts";
import { jobId, jobSpec, nodeOffer } from "../testing/specs.ts";

let control: ReplicatedControl;
let atMs: number;
beforeEach(() => {
  control = newestControl();
  atMs = 0;
  act({
    type: "node.join",
    offer: nodeOffer("a", { executors: ["training"], algorithms: ["ppo"] }),
  });
});

/** Applies one command, a second after the previous one. */
function act(command: Record<string, unknown>) {
  atMs += 1_000;
  const made = { atMs, ...command } as unknown as JobsCommand;
  const reply = control.apply({ type: "control", command: made }, control.index + 1);
  expect(reply).toMatchObject({ ok: true });
}

function serverJoins(id: string, incarnation = "1") {
  act({ type: "server.join", server: { id, name: id, address: `${id}:1`, incarnation } });
}

function submit(n: number, shards?: number) {
  const config = shards === undefined ? {} : { parameter_servers: shards };
  const spec = jobSpec({ name: `n${n}`, command: undefined, algorithm: "ppo", config });
  act({ type: "job.submit", jobId: jobId(n), spec });
}

/** Runs the scheduler and commits its plan. */
function plan() {
  const view = schedulingInput(control.state, control.jobs, {
    index: control.index,
    nowMs: atMs,
  });
  const made = schedule(view);
  act({
    type: "plan.commit",
    basedOnIndex: made.basedOnIndex,
    overcommitRatio: 1,
    acknowledgeMs: 10_000,
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    admitted: [...control.state.jobs.keys()],
    starts: made.starts,
  });
  return made.pending;
}

function report(n: number, phase: TaskReportEntry["phase"], exit?: TaskReportEntry["exit"]) {
  const { attempt } = job(n);
  const reports = [{ jobId: jobId(n), attempt, rank: 0, phase, exit }];
  act({ type: "tasks.report", nodeId: "a", reports });
}

function run(n: number) {
  report(n, "leased");
  report(n, "running");
}

const job = (n: number) => control.state.jobs.get(jobId(n))!;

test("shards: are placed with the gang, each on the least loaded server", () => {
  for (const id of ["q", "p", "r"]) serverJoins(id);
  submit(1, 4);
  submit(2);
  submit(3, 3);
  plan();
  expect(job(1)).toMatchObject({ state: "scheduled", shards: ["p", "q", "r", "p"] });
  expect(job(2).shards).toEqual(["q"]);
  expect(job(3).shards).toEqual(["r", "p", "q"]);
});

test("shards: a job that does not train needs no parameter server", () => {
  act({ type: "node.join", offer: nodeOffer("b") });
  act({ type: "job.submit", jobId: jobId(1), spec: jobSpec({ algorithm: "ppo" }) });
  plan();
  expect(job(1).state).toBe("scheduled");
  expect(job(1)).not.toHaveProperty("shards");
});

test("shards: without a server a job waits, and the reason has the numbers", () => {
  submit(1, 2);
  const blocker = { reason: "AffinityNoMatch", resource: "parameter_server_shards" };
  const blockers = [{ ...blocker, requested: 2, free: 0, limit: 0 }];
  expect(plan()).toEqual([{ entry: jobEntry(jobId(1)), blockers, reservationsAhead: 0 }]);
  expect(job(1).state).not.toBe("scheduled");
  serverJoins("p");
  expect(plan()).toEqual([]);
  expect(job(1)).toMatchObject({ state: "scheduled", shards: ["p", "p"] });
});

test("shards: a plan from before the loss of the server starts nothing", () => {
  serverJoins("p");
  submit(1);
  const view = schedulingInput(control.state, control.jobs, { index: control.index, nowMs: atMs });
  const { starts } = schedule(view);
  expect(starts).toHaveLength(1);
  act({ type: "server.lost", serverIds: ["p"] });
  act({
    type: "plan.commit",
    basedOnIndex: 0,
    overcommitRatio: 1,
    acknowledgeMs: 1,
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    admitted: [jobId(1)],
    starts,
  });
  expect(job(1)).toMatchObject({ state: "pending", liveTasks: 0 });
  expect(control.state.tasks.size).toBe(0);
});

test("server loss: ends the attempt without a retry; shards move to another server", () => {
  serverJoins("p");
  submit(1, 2);
  plan();
  run(1);
  serverJoins("q");
  act({ type: "server.lost", serverIds: ["p"] });
  expect(job(1)).toMatchObject({
    state: "retrying",
    losses: 1,
    failures: 0,
    failure: {
      reason: "NodeLost",
      message: "the parameter server p is lost, which held shard 0",
      nodeId: "p",
    },
  });
  report(1, "exited", { reason: "ExitCode", exitCode: 1, endedAtMs: atMs });
  expect(job(1)).toMatchObject({ state: "pending", failures: 0 });
  plan();
  expect(job(1)).toMatchObject({ state: "scheduled", attempt: 2, shards: ["q", "q"] });
});

test("server restart: a new process has lost its shards, a new address has not", () => {
  serverJoins("p");
  submit(1);
  plan();
  run(1);
  act({
    type: "server.join",
    server: { id: "p", name: "p", address: "elsewhere:2", incarnation: "1" },
  });
  expect(job(1).state).toBe("running");
  serverJoins("p", "2");
  expect(job(1)).toMatchObject({ state: "retrying", losses: 1 });
  expect(job(1).failure?.message).toMatch(/^the parameter server p restarted/);
});

test("shards: are free again once the job has ended", () => {
  serverJoins("p");
  submit(1, 256);
  submit(2);
  expect(plan()).toMatchObject([
    { entry: jobEntry(jobId(2)), blockers: [{ requested: 1, free: 0, limit: 256 }] },
  ]);
  run(1);
  report(1, "exited", { endedAtMs: atMs });
  expect(job(1).state).toBe("succeeded");
  expect(plan()).toEqual([]);
  expect(job(2)).toMatchObject({ state: "scheduled", shards: ["p"] });
});

test("shards: those of other jobs stay when a job of the same server ends", () => {
  serverJoins("p");
  submit(1, 2);
  submit(2, 3);
  plan();
  run(1);
  expect(shardsOn(control.jobs, "p")).toBe(5);
  report(1, "exited", { endedAtMs: atMs });
  expect(shardsOn(control.jobs, "p")).toBe(3);
  const { jobs, state } = control;
  expect(indexView(jobs, state)).toEqual(indexView(new JobIndex(state), state));
});

/** A language model in fragments, each with its own shards. */
function submitFragments(n: number, shards: number, fragments: number) {
  const config = { parameter_servers: shards, fragments };
  const spec = jobSpec({ name: `n${n}`, command: undefined, algorithm: "weave", config });
  act({ type: "job.submit", jobId: jobId(n), spec });
}

test("shards: each fragment takes places, those of one shard on one server", async () => {
  act({
    type: "node.join",
    offer: nodeOffer("a", { executors: ["training"], algorithms: ["ppo", "weave"] }),
  });
  for (const id of ["p", "q"]) serverJoins(id);
  submitFragments(1, 3, 32);
  plan();
  expect(job(1).shards).toEqual(["p", "q", "p"]);
  expect(shardsOn(control.jobs, "p")).toBe(64);
  // 192 and 224 places are free: 6 and 7 shards of 32 fragments.
  submitFragments(2, 14, 32);
  expect(plan()).toMatchObject([
    { entry: jobEntry(jobId(2)), blockers: [{ requested: 448, free: 416, limit: 512 }] },
  ]);
  // A waiting job has free places reserved for it.
  act({ type: "job.request", jobId: jobId(2), request: "cancel" });
  submitFragments(3, 13, 32);
  plan();
  expect(job(3).state).toBe("scheduled");
  expect([shardsOn(control.jobs, "p"), shardsOn(control.jobs, "q")]).toEqual([256, 256]);
  const restored = new ReplicatedControl();
  await restored.restore([...control.snapshot()]);
  expect(shardsOn(restored.jobs, "p")).toBe(256);
});

test("shards: more than all servers can hold is a fault of the field that sets it", () => {
  const faults = (shards: number, fragments: number) => {
    const config = { parameter_servers: shards, fragments };
    const spec = jobSpec({ command: undefined, algorithm: "weave", config });
    return shardFaults(spec, control.state.servers);
  };
  expect(faults(1_024, 32)).toEqual([]);
  serverJoins("p");
  expect(faults(8, 32)).toEqual([]);
  // 36 fragments of 7 shards need 252 of 256 places, but all fragments of a shard share a server.
  expect(faults(36, 7)).toEqual([]);
  expect(faults(9, 32)).toEqual([
    {
      param: "config.fragments",
      detail:
        "9 in 32 fragments are 288 shards, and the cluster's parameter servers (1) hold 256 at " +
        "most: ask for fewer, or add servers",
      reads: expect.arrayContaining(["config"]),
    },
  ]);
  expect(faults(257, 1)).toMatchObject([{ param: "config.parameter_servers" }]);
  act({ type: "server.lost", serverIds: ["p"] });
  expect(faults(8, 32)).toEqual([]);
});

test("restore: a snapshot holds the servers and their shards", async () => {
  serverJoins("p");
  submit(1, 2);
  plan();
  run(1);
  const restored = new ReplicatedControl();
  await restored.restore([...control.snapshot()]);
  const command = { type: "server.lost" as const, atMs, serverIds: ["p"] };
  const index = control.index + 1;
  for (const replica of [control, restored]) {
    replica.apply({ type: "control", command }, index);
    expect(replica.state.jobs.get(jobId(1))?.state).toBe("retrying");
  }
  expect(restored.hash).toBe(control.hash);
});

test("algorithm: one that no worker offers is refused with those on offer", () => {
  const spec = jobSpec({ command: undefined, algorithm: "sac" });
  act({ type: "job.submit", jobId: jobId(1), spec });
  expect(algorithmFault(control.state, jobId(1))).toBe(
    "AlgorithmUnavailable: no worker offers the algorithm sac; the workers offer: ppo",
  );
  submit(2);
  expect(algorithmFault(control.state, jobId(2))).toBeUndefined();
});

/** Reports this phase for several ranks of job 1, each with its present incarnation. */
function reportRanks(
  ranks: readonly number[],
  phase: TaskReportEntry["phase"],
  exit?: TaskReportEntry["exit"],
) {
  const { attempt } = job(1);
  const reports = ranks.map((rank) => {
    const { incarnation = 0 } = control.state.tasks.get(`${jobId(1)}/${attempt}/${rank}`) ?? {};
    return { jobId: jobId(1), attempt, rank, incarnation, phase, exit };
  });
  act({ type: "tasks.report", nodeId: "a", reports });
}

const WELL = { exitCode: 0, endedAtMs: 0 };
const LOST = { reason: "NodeLost", message: "SIGKILL", endedAtMs: 0 } as const;

/** Job 1 with three running tasks, of which one may be lost. */
function runThree(more: Partial<SubmitJob> = {}) {
  serverJoins("p");
  const gang = { tasks: 3, failure_tolerance: 1, resources: { gpu_count: 3 } };
  const spec = jobSpec({ command: undefined, algorithm: "ppo", config: {}, ...gang, ...more });
  act({ type: "job.submit", jobId: jobId(1), spec });
  plan();
  reportRanks([0, 1, 2], "leased");
  reportRanks([0, 1, 2], "running");
  expect(job(1)).toMatchObject({ state: "running", attempt: 1, shards: ["p"] });
}

test("recovery: a lost task within the tolerance restarts in the same attempt", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  expect(job(1)).toMatchObject({ state: "recovering", attempt: 1, losses: 1 });
  plan();
  expect(control.state.tasks.get(`${jobId(1)}/1/2`)).toMatchObject({ incarnation: 1 });
  reportRanks([2], "leased");
  reportRanks([2], "running");
  expect(job(1)).toMatchObject({ state: "running", attempt: 1, shards: ["p"], failures: 0 });
});

test("training: succeeds with rank 0, also without a lost task; not without rank 0", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  reportRanks([0], "exited", WELL);
  expect(job(1).state).toBe("recovering");
  reportRanks([1], "exited", WELL);
  expect(job(1)).toMatchObject({ state: "succeeded", attempt: 1, liveTasks: 0 });
  expect(job(1)).not.toHaveProperty("failure.reason");
});

test("training: does not succeed while one of two missing tasks may be alive", () => {
  runThree({ failure_tolerance: 2 });
  reportRanks([2], "exited", LOST);
  reportRanks([0], "exited", WELL);
  expect(job(1)).toMatchObject({ state: "recovering", liveTasks: 1 });
  reportRanks([1], "exited", LOST);
  expect(job(1)).toMatchObject({ state: "succeeded", attempt: 1 });
});

test("training: where rank 0 is lost, the ends of the others do not end the job", () => {
  runThree();
  reportRanks([0], "exited", LOST);
  reportRanks([1, 2], "exited", WELL);
  expect(job(1)).toMatchObject({ state: "recovering", attempt: 1 });
  plan();
  reportRanks([0], "leased");
  reportRanks([0], "running");
  reportRanks([0], "exited", WELL);
  expect(job(1)).toMatchObject({ state: "succeeded", attempt: 1 });
});

test("recovery: losses above the tolerance end the attempt without a retry", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  reportRanks([1], "exited", LOST);
  expect(job(1)).toMatchObject({ state: "retrying", attempt: 1, failures: 0 });
});

/** As a worker reports a trainer that a signal ended. */
const CRASHED = { ...LOST, signal: "SIGSEGV", lastLines: ["a bad kernel"] };

/** Job 1's lost ranks get new places and run. */
function replace(ranks: readonly number[]) {
  plan();
  reportRanks(ranks, "leased");
  reportRanks(ranks, "running");
  expect(job(1).state).toBe("running");
}

// holds: train-crash-loop
test("crash loop: a rank that crashes early three times fails the job", () => {
  runThree({ retry_limit: 1 });
  for (let crash = 1; crash <= 2; crash++) {
    reportRanks([2], "exited", CRASHED);
    expect(job(1)).toMatchObject({ state: "recovering", losses: crash, failures: 0 });
    replace([2]);
  }
  reportRanks([2], "exited", CRASHED);
  expect(job(1)).toMatchObject({ state: "retrying", attempt: 1, losses: 2, failures: 1 });
  expect(job(1).notBeforeMs).toBe(atMs + 1_000);
  expect(job(1).failure).toEqual({
    reason: "ExitCode",
    signal: "SIGSEGV",
    rank: 2,
    nodeId: "a",
    lastLines: ["a bad kernel"],
    message:
      "rank 2 was ended by SIGSEGV 3 times in a row, each within 60 s of its start; " +
      "the last time: SIGKILL",
  });
  // The count restarts with the next attempt.
  reportRanks([0, 1], "exited", WELL);
  atMs += 1_000;
  replace([0, 1, 2]);
  expect(job(1)).toMatchObject({ attempt: 2 });
  reportRanks([2], "exited", CRASHED);
  expect(job(1)).toMatchObject({ state: "recovering", attempt: 2, failures: 1 });
});

test("crash loop: crashes after a minute and lost nodes count as losses", () => {
  runThree();
  for (let loss = 1; loss <= 6; loss++) {
    atMs += loss % 3 === 0 ? 60_000 : 0;
    reportRanks([2], "exited", loss % 3 === 1 ? LOST : CRASHED);
    expect(job(1)).toMatchObject({ state: "recovering", losses: loss, failures: 0 });
    replace([2]);
  }
});

test("crash loop: joint crashes above the tolerance count over attempts", () => {
  runThree();
  for (let attempt = 1; attempt <= 2; attempt++) {
    reportRanks([1], "exited", CRASHED);
    reportRanks([2], "exited", CRASHED);
    expect(job(1)).toMatchObject({ state: "retrying", attempt, failures: 0 });
    reportRanks([0], "exited", WELL);
    replace([0, 1, 2]);
  }
  reportRanks([1], "exited", CRASHED);
  expect(job(1)).toMatchObject({ state: "failed", attempt: 3, failures: 1 });
  expect(job(1).failure).toMatchObject({ reason: "ExitCode", rank: 1 });
});
