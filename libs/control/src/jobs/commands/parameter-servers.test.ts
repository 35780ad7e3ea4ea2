import type { SubmitJob } from "@heddle/contracts/jobs";
import { schedule } from "@heddle/scheduler/schedule";
import { beforeEach, expect, test } from "vitest";
import { ReplicatedControl } from "../../replicated-control.ts";
import type { JobsCommand, TaskReportEntry } from "../records/commands.ts";
import { algorithmFault } from "../records/task-request.ts";
import { schedulingInput } from "../scheduling/scheduling-input.ts";
import { shardFaults, shardsOn } from "../scheduling/shard-places.ts";
import { jobId, jobSpec, nodeOffer } from "../testing/specs.ts";

let control: ReplicatedControl;
let atMs: number;
beforeEach(() => {
  control = new ReplicatedControl();
  atMs = 0;
  act({
    type: "node.join",
    offer: nodeOffer("a", { executors: ["training"], algorithms: ["ppo"] }),
  });
});

/** One command, a second after the one before. */
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

/** Has the scheduler plan, and commits it. */
function plan() {
  const view = schedulingInput(control.state, control.jobs, {
    index: control.index,
    nowMs: atMs,
  });
  const made = schedule(view);
  act({
    ...{ type: "plan.commit", basedOnIndex: made.basedOnIndex, overcommitRatio: 1 },
    ...{ acknowledgeMs: 10_000, unsatisfiable: [], preemptions: [], expired: [] },
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

test("shards are given out with the places of the gang, each where the fewest are", () => {
  for (const id of ["q", "p", "r"]) serverJoins(id);
  submit(1, 4);
  submit(2);
  submit(3, 3);
  plan();
  expect(job(1)).toMatchObject({ state: "scheduled", shards: ["p", "q", "r", "p"] });
  expect(job(2).shards).toEqual(["q"]);
  expect(job(3).shards).toEqual(["r", "p", "q"]);
});

test("a job that trains nothing has no shards, and needs no parameter server", () => {
  act({ type: "node.join", offer: nodeOffer("b") });
  act({ type: "job.submit", jobId: jobId(1), spec: jobSpec({ algorithm: "ppo" }) });
  plan();
  expect(job(1).state).toBe("scheduled");
  expect(job(1)).not.toHaveProperty("shards");
});

test("without a parameter server a job waits and is told so with numbers, until one attaches", () => {
  submit(1, 2);
  const blocker = { reason: "AffinityNoMatch", resource: "parameter_server_shards" };
  const blockers = [{ ...blocker, requested: 2, free: 0, limit: 0 }];
  expect(plan()).toEqual([{ jobId: jobId(1), blockers, promisesAhead: 0 }]);
  expect(job(1).state).not.toBe("scheduled");
  serverJoins("p");
  expect(plan()).toEqual([]);
  expect(job(1)).toMatchObject({ state: "scheduled", shards: ["p", "p"] });
});

test("a plan that was made before the server was lost starts nothing", () => {
  serverJoins("p");
  submit(1);
  const view = schedulingInput(control.state, control.jobs, { index: control.index, nowMs: atMs });
  const { starts } = schedule(view);
  expect(starts).toHaveLength(1);
  act({ type: "server.lost", serverIds: ["p"] });
  act({
    ...{ type: "plan.commit", basedOnIndex: 0, overcommitRatio: 1, acknowledgeMs: 1 },
    ...{ unsatisfiable: [], preemptions: [], expired: [], admitted: [jobId(1)], starts },
  });
  expect(job(1)).toMatchObject({ state: "pending", liveTasks: 0 });
  expect(control.state.tasks.size).toBe(0);
});

test("a lost parameter server ends the attempt without a retry, and the next has its shards elsewhere", () => {
  serverJoins("p");
  submit(1, 2);
  plan();
  run(1);
  serverJoins("q");
  act({ type: "server.lost", serverIds: ["p"] });
  expect(job(1)).toMatchObject({
    ...{ state: "retrying", losses: 1, failures: 0 },
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

test("a parameter server that was started anew has lost its shards; one that only moved has not", () => {
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
  expect(job(1).failure?.message).toMatch(/^the parameter server p was started anew/);
});

test("the shards of what has ended are free again", () => {
  serverJoins("p");
  submit(1, 256);
  submit(2);
  expect(plan()).toMatchObject([
    { jobId: jobId(2), blockers: [{ requested: 1, free: 0, limit: 256 }] },
  ]);
  run(1);
  report(1, "exited", { endedAtMs: atMs });
  expect(job(1).state).toBe("succeeded");
  expect(plan()).toEqual([]);
  expect(job(2)).toMatchObject({ state: "scheduled", shards: ["p"] });
});

/** A language model in fragments, each of which has its own shards. */
function submitFragments(n: number, shards: number, fragments: number) {
  const config = { parameter_servers: shards, fragments };
  const spec = jobSpec({ name: `n${n}`, command: undefined, algorithm: "weave", config });
  act({ type: "job.submit", jobId: jobId(n), spec });
}

test("the shards of each fragment take places, those of one shard on one server", async () => {
  act({
    ...{ type: "node.join" },
    offer: nodeOffer("a", { executors: ["training"], algorithms: ["ppo", "weave"] }),
  });
  for (const id of ["p", "q"]) serverJoins(id);
  submitFragments(1, 3, 32);
  plan();
  expect(job(1).shards).toEqual(["p", "q", "p"]);
  expect(shardsOn(control.jobs, "p")).toBe(64);
  // 192 and 224 places are left: 6 and 7 shards of 32 fragments.
  submitFragments(2, 14, 32);
  expect(plan()).toMatchObject([
    { jobId: jobId(2), blockers: [{ requested: 448, free: 416, limit: 512 }] },
  ]);
  // One that waits for places has them kept for it.
  act({ type: "job.request", jobId: jobId(2), request: "cancel" });
  submitFragments(3, 13, 32);
  plan();
  expect(job(3).state).toBe("scheduled");
  expect([shardsOn(control.jobs, "p"), shardsOn(control.jobs, "q")]).toEqual([256, 256]);
  const restored = new ReplicatedControl();
  await restored.restore([...control.snapshot()]);
  expect(shardsOn(restored.jobs, "p")).toBe(256);
});

test("shards that all servers together could not hold are a fault of the field that asks for them", () => {
  const faults = (shards: number, fragments: number) => {
    const config = { parameter_servers: shards, fragments };
    const spec = jobSpec({ command: undefined, algorithm: "weave", config });
    return shardFaults(spec, control.state.servers);
  };
  expect(faults(1_024, 32)).toEqual([]);
  serverJoins("p");
  expect(faults(8, 32)).toEqual([]);
  // 36 of 7 shards would be 252 of 256 places: those of a shard are on one server.
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

test("a master restored from a snapshot knows the servers and who holds shards there", async () => {
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

test("an algorithm that no worker offers is named with those that they do offer", () => {
  const spec = jobSpec({ command: undefined, algorithm: "sac" });
  act({ type: "job.submit", jobId: jobId(1), spec });
  expect(algorithmFault(control.state, jobId(1))).toBe(
    "AlgorithmUnavailable: no worker offers the algorithm sac; the workers offer: ppo",
  );
  submit(2);
  expect(algorithmFault(control.state, jobId(2))).toBeUndefined();
});

/** Says of several ranks of job 1, each of its present incarnation, that they are in this phase. */
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

/** Job 1 with three tasks that run, of which one may be lost. */
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

test("a lost task within the tolerance is placed anew in the same attempt, its shards stay", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  expect(job(1)).toMatchObject({ state: "recovering", attempt: 1, losses: 1 });
  plan();
  expect(control.state.tasks.get(`${jobId(1)}/1/2`)).toMatchObject({ incarnation: 1 });
  reportRanks([2], "leased");
  reportRanks([2], "running");
  expect(job(1)).toMatchObject({ state: "running", attempt: 1, shards: ["p"], failures: 0 });
});

test("training succeeds with rank 0, also without a lost task; not without rank 0", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  reportRanks([0], "exited", WELL);
  expect(job(1).state).toBe("recovering");
  reportRanks([1], "exited", WELL);
  expect(job(1)).toMatchObject({ state: "succeeded", attempt: 1, liveTasks: 0 });
  expect(job(1)).not.toHaveProperty("failure.reason");
});

test("where rank 0 is the lost one the others' ends are not the job's", () => {
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

test("losses beyond the tolerance end the attempt, without a retry charged", () => {
  runThree();
  reportRanks([2], "exited", LOST);
  reportRanks([1], "exited", LOST);
  expect(job(1)).toMatchObject({ state: "retrying", attempt: 1, failures: 0 });
});

/** As a worker tells it of a trainer that a signal has ended. */
const CRASHED = { ...LOST, signal: "SIGSEGV", lastLines: ["a bad kernel"] };

/** Job 1's lost ranks get other places and run. */
function replace(ranks: readonly number[]) {
  plan();
  reportRanks(ranks, "leased");
  reportRanks(ranks, "running");
  expect(job(1).state).toBe("running");
}

test("a rank that crashes three times, each time soon after its start, is the job's own failure", () => {
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
    ...{ reason: "ExitCode", signal: "SIGSEGV", rank: 2, nodeId: "a" },
    lastLines: ["a bad kernel"],
    message:
      "rank 2 was ended by SIGSEGV 3 times in a row, each within 60 s of its start; " +
      "the last time: SIGKILL",
  });
  // The next attempt counts anew.
  reportRanks([0, 1], "exited", WELL);
  atMs += 1_000;
  replace([0, 1, 2]);
  expect(job(1)).toMatchObject({ attempt: 2 });
  reportRanks([2], "exited", CRASHED);
  expect(job(1)).toMatchObject({ state: "recovering", attempt: 2, failures: 1 });
});

test("crashes of a rank that ran for a minute in between, and lost nodes, are losses however many", () => {
  runThree();
  for (let loss = 1; loss <= 6; loss++) {
    atMs += loss % 3 === 0 ? 60_000 : 0;
    reportRanks([2], "exited", loss % 3 === 1 ? LOST : CRASHED);
    expect(job(1)).toMatchObject({ state: "recovering", losses: loss, failures: 0 });
    replace([2]);
  }
});

test("tasks that crash together, beyond the tolerance, are counted over their attempts", () => {
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
