// holds: life-transitions

import { FAILURE_REASONS, JOB_STATES, type JobState } from "@heddle/contracts/api/job-spec";
import { describe, expect, it, test } from "vitest";
import { LIMITED_TASKS, NEWEST_VERSION } from "../../cluster-version.ts";
import { isTerminal, type JobTransition, MAX_LOSSES, transition } from "./lifecycle.ts";
import type { JobFailureRecord, JobRecord } from "./records.ts";

const NOW = { index: 9, atMs: 5_000, version: NEWEST_VERSION };

function job(state: JobState, change: Partial<JobRecord> = {}): JobRecord {
  return {
    id: "j",
    name: "n",
    project: "p",
    queue: "q",
    state,
    submittedIndex: 1,
    submittedAtMs: 1,
    changedIndex: 1,
    sinceMs: 1,
    tasks: 2,
    attempt: 1,
    failures: 0,
    losses: 0,
    preemptions: 0,
    liveTasks: 2,
    waitingFor: [],
    ...change,
  };
}

/** The states that the job passes through. */
const walk = (from: JobRecord, event: JobTransition) =>
  transition(from, event, NOW).map(({ state }) => state);

const failure = (reason: JobFailureRecord["reason"]): JobFailureRecord => ({ reason, message: "" });
const leave = (why: "preempt" | "drain" | "suspend"): JobTransition => ({
  type: "leave",
  leaving: { why },
  byMs: 8_000,
});
const failed = (reason: JobFailureRecord["reason"], retryLimit = 0): JobTransition => ({
  type: "failed",
  failure: failure(reason),
  retryLimit,
});
const lost = (within: boolean): JobTransition => ({
  type: "nodesLost",
  within,
  isSilent: false,
  failure: failure("NodeLost"),
});
const none = { liveTasks: 0 };
const one = { liveTasks: 1 };

describe("lifecycle: the transition table", () => {
  it.each<[string, JobRecord, JobTransition, JobState[]]>([
    ["admits an accepted job", job("accepted", none), { type: "admitted" }, ["pending"]],
    ["reserves", job("pending", none), { type: "reserved", tasks: 2, byMs: 1 }, ["scheduled"]],
    ["starts when all is leased", job("scheduled"), { type: "leased" }, ["starting"]],
    ["goes back unacknowledged", job("scheduled"), { type: "due" }, ["pending"]],
    ["runs after the rendezvous", job("starting"), { type: "rendezvous" }, ["running"]],
    ["checkpoints to leave", job("running"), leave("preempt"), ["checkpointing"]],
    ["gives a drained job's places up", job("starting"), leave("drain"), ["preempted"]],
    ["suspends one that waits", job("pending", none), leave("suspend"), ["suspended"]],
    [
      "puts a preempted job back when its last task has ended",
      job("checkpointing", { ...one, leaving: { why: "preempt" } }),
      { type: "taskOver" },
      ["checkpointing", "preempted", "pending"],
    ],
    [
      "keeps a suspended one away",
      job("checkpointing", { ...one, leaving: { why: "suspend" } }),
      { type: "taskOver" },
      ["checkpointing", "suspended"],
    ],
    [
      "ends a checkpoint at its grace",
      job("checkpointing", { leaving: { why: "drain" } }),
      { type: "due" },
      ["preempted"],
    ],
    ["resumes", job("suspended", none), { type: "resume" }, ["pending"]],
    ["recovers what it tolerates", job("running"), lost(true), ["recovering"]],
    ["continues once recovered", job("recovering"), { type: "rendezvous" }, ["running"]],
    ["retries what it does not tolerate", job("running"), lost(false), ["retrying"]],
    ["gives up a start on a lost node", job("scheduled"), lost(false), ["pending"]],
    ["waits for old tasks", job("retrying"), { type: "taskOver" }, ["retrying"]],
    [
      "waits again when they have ended",
      job("retrying", one),
      { type: "taskOver" },
      ["retrying", "pending"],
    ],
    ["retries a failure", job("running"), failed("ExitCode", 1), ["retrying"]],
    ["fails without a retry", job("running"), failed("ExitCode"), ["failed"]],
    ["succeeds", job("running", none), { type: "succeeded" }, ["succeeded"]],
    [
      "succeeds before all were seen",
      job("starting"),
      { type: "succeeded" },
      ["running", "succeeded"],
    ],
    ["cancels what runs", job("running"), { type: "cancel" }, ["cancelling"]],
    [
      "cancels what waits at once",
      job("pending", none),
      { type: "cancel" },
      ["cancelling", "cancelled"],
    ],
    [
      "is cancelled when its last task has ended",
      job("cancelling", one),
      { type: "taskOver" },
      ["cancelling", "cancelled"],
    ],
  ])("%s", (_what, from, event, states) => {
    expect(walk(from, event)).toEqual(states);
  });
});

test("lifecycle: nothing leaves a terminal state", () => {
  const events: JobTransition[] = [
    { type: "admitted" },
    { type: "leased" },
    { type: "rendezvous" },
    { type: "due" },
    { type: "succeeded" },
    { type: "cancel" },
    { type: "resume" },
    { type: "doomed", failure: failure("Internal") },
    { type: "reserved", tasks: 2, byMs: 1 },
    leave("suspend"),
    lost(true),
    lost(false),
    failed("Hang", 9),
  ] as JobTransition[];
  for (const state of JOB_STATES.filter(isTerminal)) {
    for (const event of events) expect(walk(job(state), event), event.type).toEqual([]);
    expect(walk(job(state), { type: "taskOver" })).toEqual([state]);
  }
});

test("attempt: only a reservation raises it, once no task of the last is live", () => {
  const reserved: JobTransition = { type: "reserved", tasks: 2, byMs: 1 };
  expect(transition(job("pending", none), reserved, NOW)[0]).toMatchObject({
    attempt: 2,
    liveTasks: 2,
  });
  expect(transition(job("pending", one), reserved, NOW)).toEqual([]);
  expect(transition(job("recovering", one), reserved, NOW)[0]).toMatchObject({
    attempt: 1,
    liveTasks: 3,
  });
});

test("failure: a running job has none; its counters keep the past ones", () => {
  const [recovering] = transition(job("running"), lost(true), NOW);
  expect(recovering?.failure).toMatchObject({ reason: "NodeLost" });
  const [running] = transition(recovering!, { type: "rendezvous" }, NOW);
  expect(running).toMatchObject({ state: "running", losses: 1, failure: undefined });
});

// holds: life-losses
test("losses: nodes, devices and preemptions use no retry; 100 fail the job", () => {
  for (const event of [lost(false), failed("GpuFault"), failed("NodeLost")]) {
    const [after] = transition(job("running"), event, NOW);
    expect(after).toMatchObject({ state: "retrying", failures: 0, losses: 1 });
  }
  expect(walk(job("running", { losses: MAX_LOSSES }), lost(true))).toEqual(["failed"]);
});

// holds: life-silent-losses
describe("silent losses", () => {
  const maxIdleLosses = 5;
  const silent = { ...lost(false), isSilent: true } as JobTransition;
  /** The job after that many losses, each with the change that it had made meanwhile. */
  function lose(times: number, change: (time: number) => Partial<JobRecord>, now = NOW) {
    let after = job("running");
    for (let time = 1; time <= times; time++) {
      const running = { ...after, state: "running" as const, ...change(time) };
      after = transition(running, silent, { ...now, atMs: time * 60_000 })[0]!;
    }
    return after;
  }

  test("in a row without progress: one more than the bound fails the job", () => {
    expect(lose(maxIdleLosses, () => ({}))).toMatchObject({ state: "retrying", losses: 5 });
    const { state, failure: why } = lose(maxIdleLosses + 1, () => ({}));
    expect(state).toBe("failed");
    expect(why?.reason).toBe("NodeLost");
    expect(why?.message).toMatch(
      /lost 6 times in a row without a new step .* fewer tasks on a node/,
    );
  });

  test("from the second on in a row each start waits longer", () => {
    const waits = [1, 2, 3, 4].map((times) => {
      const { notBeforeMs } = lose(times, () => ({}));
      return notBeforeMs && notBeforeMs - times * 60_000;
    });
    expect(waits).toEqual([undefined, 1_000, 2_000, 4_000]);
  });

  test.each<[string, (time: number) => Partial<JobRecord>]>([
    ["a step", (time) => ({ progress: { atMs: time, step: time } })],
    ["a checkpoint", (time) => ({ checkpoint: { name: "", attempt: 1, atMs: time } })],
    ["ten minutes", (time) => ({ startedAtMs: time * 60_000 - 600_000, idleLosses: long(time) })],
  ])("%s in between restarts the count", (_, change) => {
    expect(lose(20, change)).toMatchObject({ state: "retrying", idleLosses: { count: 1 } });
  });

  test("a step that an earlier attempt had reached is no progress", () => {
    const steps = (time: number) => ({ progress: { atMs: time, step: 50 - time } });
    expect(lose(maxIdleLosses + 1, steps).state).toBe("failed");
  });

  test("a long run before the loss before is no progress", () => {
    const longSince = () => ({ startedAtMs: -3_600_000 });
    expect(lose(maxIdleLosses + 1, longSince).state).toBe("failed");
  });

  test("below the version that bounds them they do not count", () => {
    const old = { ...NOW, version: LIMITED_TASKS - 1 };
    expect(lose(20, () => ({}), old)).toMatchObject({ state: "retrying", losses: 20 });
    expect(lose(20, () => ({}), old).idleLosses).toBeUndefined();
  });
});

/** The loss before, ten minutes ago. */
function long(time: number): JobRecord["idleLosses"] {
  return time === 1 ? undefined : { count: 1, atMs: (time - 10) * 60_000 };
}

// holds: life-limits
test("retries: the backoff doubles, and the last cause is kept at the limit", () => {
  const notBefore = (failures: number) =>
    transition(job("running", { failures }), failed("Hang", 20), NOW)[0]?.notBeforeMs;
  expect([0, 1, 2, 19].map(notBefore)).toEqual([6_000, 7_000, 9_000, 305_000]);
  const [last] = transition(job("running", { failures: 2 }), failed("Hang", 2), NOW);
  expect(last?.failure).toMatchObject({ reason: "RetryLimitExceeded", cause: "Hang" });
});

test("refused starts: the backoff starts with the second", () => {
  const notBefore = (losses: number) =>
    transition(job("scheduled", { losses }), lost(false), NOW)[0]?.notBeforeMs;
  expect([0, 1, 2, 3, 99].map(notBefore)).toEqual([undefined, 6_000, 7_000, 9_000, 35_000]);
});

test("failure reasons: each has its consequence while retries are left", () => {
  const final = [
    "DeadlineExceeded",
    "DependencyFailed",
    "CheckpointCorrupt",
    "Unsatisfiable",
    "StorageExceeded",
  ];
  for (const reason of FAILURE_REASONS) {
    const expected = final.includes(reason) ? "failed" : "retrying";
    expect(walk(job("running"), failed(reason, 5)), reason).toEqual([expected]);
  }
});

test("suspicion: a second failure does not lengthen the wait for the first", () => {
  const suspected = (byMs: number): JobTransition => {
    return { type: "suspected", failure: failure("Hang"), byMs };
  };
  const [first] = transition(job("running"), suspected(8_000), NOW);
  expect(first).toMatchObject({ state: "running", dueMs: 8_000, suspectedMs: NOW.atMs });
  expect(transition(first!, suspected(9_000), { ...NOW, atMs: 6_000 })).toEqual([]);
  expect(transition(job("scheduled"), suspected(8_000), NOW)).toEqual([]);
});

test("backoff: it doubles with each failure, up to five minutes", () => {
  const waits = [0, 1, 2, 7, 8, 9, 30].map((failures) => {
    const [, pending] = transition(job("running", { failures, ...none }), failed("Hang", 99), NOW);
    return pending!.notBeforeMs! - NOW.atMs;
  });
  expect(waits).toEqual([1_000, 2_000, 4_000, 128_000, 256_000, 300_000, 300_000]);
});

test("leave: a later request can only bring the end of the grace nearer", () => {
  const leaving = job("checkpointing", { leaving: { why: "preempt" }, dueMs: 8_000 });
  const due = (byMs: number) =>
    transition(leaving, { type: "leave", leaving: { why: "drain" }, byMs }, NOW)[0];
  expect(due(9_000)).toMatchObject({ dueMs: 8_000, leaving: { why: "preempt" } });
  expect(due(7_000)).toMatchObject({ dueMs: 7_000 });
  // A suspension also applies while the job leaves for another reason.
  const [stays] = transition(leaving, leave("suspend"), NOW);
  expect(stays).toMatchObject({ state: "checkpointing", leaving: { why: "suspend" } });
});
