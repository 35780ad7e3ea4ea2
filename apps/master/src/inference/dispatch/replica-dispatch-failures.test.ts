import { held } from "@heddle/base/testing/held";
import type { EngineEvent } from "@heddle/contracts/engine";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  DONE,
  dispatchOver,
  failed,
  full,
  pass,
  read,
  ScriptedReplica,
  STARTED,
  soon,
  useTimesByHand,
} from "../../../test/scripted-replicas.ts";

beforeEach(useTimesByHand);

afterEach(() => {
  vi.useRealTimers();
});

test("dispatch: a failure before the first event is retried on another replica", async () => {
  const [bad, good] = [new ScriptedReplica("a"), new ScriptedReplica("b")];
  bad.answers = [[failed("worker_lost")]];
  const { start, dispatch } = dispatchOver([bad, good]);
  const call = start();
  await soon();
  expect(call.answer?.node).toBe("b");
  expect(dispatch.stats()).toMatchObject({ started: 1, retries: 1 });
});

test("dispatch: after three failures the last one is reported, with its node", async () => {
  const replicas = ["a", "b", "c", "d"].map((name) => new ScriptedReplica(name));
  for (const replica of replicas) replica.answers = [[failed("engine_failed")]];
  const { start, dispatch } = dispatchOver(replicas);
  const call = start();
  await soon();
  expect(call.error).toMatchObject({
    code: "engine_failed",
    node: "c",
    param: "p",
    model: "m",
  });
  expect(call.error?.["retryAfterMs"]).toBeUndefined();
  expect(replicas.map(({ deadlines }) => deadlines.length)).toEqual([1, 1, 1, 0]);
  expect(dispatch.stats()).toMatchObject({ started: 0, retries: 2 });
});

test("dispatch: requests that an engine fails to answer hold up no others", async () => {
  const only = new ScriptedReplica("a");
  const cause = Array.from({ length: 12 }, () => [failed("answer_failed")]);
  only.answers = [...cause, [STARTED, DONE]];
  const { start } = dispatchOver([only]);
  for (let sent = 1; sent <= cause.length; sent++) {
    const refused = start();
    await soon();
    expect(refused.error).toMatchObject({ code: "answer_failed" });
    expect(only.deadlines).toHaveLength(sent);
  }
  const other = start();
  await soon();
  expect(other.answer?.node).toBe("a");
});

test("dispatch: an invalid or cancelled call fails at once", async () => {
  const [bad, other] = [new ScriptedReplica("a"), new ScriptedReplica("b")];
  bad.answers = [[failed("context_length_exceeded")]];
  const { start } = dispatchOver([bad, other]);
  const wrong = start();
  await soon();
  expect(wrong.error).toMatchObject({ code: "context_length_exceeded", node: "a" });
  bad.answers = [[failed("worker_lost")]];
  other.answers = [[failed("worker_lost")]];
  const caller = new AbortController();
  const left = start({}, caller.signal);
  caller.abort();
  await soon();
  expect(left.error).toMatchObject({ code: "worker_lost" });
});

test("dispatch: a refusing replica is retried with each report, eight times", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("overloaded")]];
  const { start, change, dispatch } = dispatchOver([replica]);
  const call = start();
  await soon();
  await change();
  expect(replica.deadlines).toHaveLength(1);
  expect(dispatch.stats().queued).toBe(1);
  for (let asked = 2; asked <= 8; asked++) {
    expect(call.error).toBeUndefined();
    replica.reports++;
    await change();
    expect(replica.deadlines).toHaveLength(asked);
  }
  expect(call.error).toMatchObject({ code: "overloaded", node: "a", retryAfterMs: 1_000 });
});

test("dispatch: a call that waits for a report blocks no other", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("unavailable")], [STARTED, DONE]];
  const { start } = dispatchOver([replica]);
  const waiting = start();
  await soon();
  const next = start();
  await soon();
  expect([waiting.answer, next.answer?.node]).toEqual([undefined, "a"]);
});

test("dispatch: a failure on the only engine is final once the engine is known to run", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("engine_failed")], [STARTED, DONE]];
  const { start, change } = dispatchOver([replica]);
  const call = start();
  await soon();
  replica.reports++;
  await change();
  // It may have been sent before the call failed.
  expect(call.error).toBeUndefined();
  replica.reports++;
  await change();
  expect(call.error).toMatchObject({ code: "engine_failed", node: "a" });
  expect(replica.deadlines).toHaveLength(1);
});

test("dispatch: a report before the failure does not show that the engine runs", async () => {
  const { promise, resolve } = Promise.withResolvers<EngineEvent[]>();
  const sent = Object.assign(new ScriptedReplica("a"), { answers: [promise] });
  const { start, change, source } = dispatchOver([sent]);
  const reported = (reports: number) => {
    source.replicas = [Object.assign(new ScriptedReplica("a"), { reports })];
    return change();
  };
  const call = start();
  await soon();
  await reported(5);
  resolve([failed("engine_failed")]);
  await soon();
  await reported(6);
  expect(call.error).toBeUndefined();
  await reported(7);
  expect(call.error).toMatchObject({ code: "engine_failed", node: "a" });
});

// holds: api-retry
test("dispatch: a call whose worker was lost goes to the same process again", async () => {
  const replica = Object.assign(new ScriptedReplica("a"), { reports: 500 });
  replica.answers = [[failed("worker_lost")], [STARTED, DONE]];
  const { start, change, source, dispatch } = dispatchOver([replica]);
  const call = start();
  source.replicas = [];
  await soon();
  await change();
  expect([call.answer, call.error]).toEqual([undefined, undefined]);
  source.replicas = [replica];
  await change();
  expect(await read(call)).toEqual(["started", "done"]);
  expect(dispatch.stats()).toMatchObject({ started: 1, retries: 1, queued: 0 });
});

test("dispatch: the third lost connection of a call is reported", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("worker_lost")]];
  const { start, dispatch } = dispatchOver([replica]);
  const call = start();
  await soon();
  expect(call.error).toMatchObject({ code: "worker_lost", node: "a" });
  expect(replica.deadlines).toHaveLength(3);
  expect(dispatch.stats()).toMatchObject({ started: 0, retries: 2, queued: 0 });
});

// holds: api-wait-cause
test("dispatch: a wait without another report ends with the replica's refusal", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("model_loading")]];
  const { start } = dispatchOver([replica], { maxWaitMs: 100 });
  const call = start();
  await pass(100);
  expect(call.error).toMatchObject({ code: "model_loading", message: "it is model_loading" });
});

// holds: api-wait-cause
test("dispatch: a refusal for lack of room has the time that the call waited", async () => {
  const replica = full("a");
  const { start, change, source } = dispatchOver([], { maxWaitMs: 1_000 });
  const call = start();
  await pass(4_000);
  source.replicas = [replica];
  await change();
  await pass(1_000);
  const message = expect.stringContaining("no replica had room within 5000 ms");
  expect(call.error).toMatchObject({ code: "overloaded", message });
});

test("dispatch: a call that failed on an engine goes to its replacement", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[failed("engine_failed")]];
  const { start, change, source } = dispatchOver([replica]);
  const call = start();
  await soon();
  source.replicas = [];
  await change();
  expect(call.error).toBeUndefined();
  source.replicas = [Object.assign(new ScriptedReplica("a"), { holder: "a/2" })];
  await change();
  expect(call.answer?.node).toBe("a");
});

test.each(["engine_failed", "server_error"] as const)(
  "dispatch: three %s open a replica's circuit until its probe",
  async (code) => {
    const replica = new ScriptedReplica("a");
    const crash = [STARTED, failed(code)];
    replica.answers = [crash, crash, crash, [STARTED, DONE]];
    const { start, change } = dispatchOver([replica], { maxWaitMs: 9_000 });
    for (let failures = 0; failures < 3; failures++) {
      const call = start();
      await soon();
      const types = held(read(call));
      await soon();
      // The engine runs: no other will continue the answer.
      replica.reports += 2;
      await change();
      expect(await types).toEqual(["started", "failed"]);
    }
    const probe = start();
    await pass(999);
    expect(replica.deadlines).toHaveLength(3);
    await pass(1);
    await soon();
    expect(await read(probe)).toEqual(["started", "done"]);
  },
);

test("dispatch: a complete answer resets the count of failures", async () => {
  const replica = new ScriptedReplica("a");
  const crash = [STARTED, failed("server_error")];
  replica.answers = [crash, crash, [STARTED, DONE], crash, crash, [STARTED, DONE]];
  const { start } = dispatchOver([replica]);
  for (let calls = 0; calls < 6; calls++) {
    const call = start();
    await soon();
    await read(call);
  }
  expect(replica.deadlines).toHaveLength(6);
});

test("dispatch: refusals and cancelled answers open no circuit", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[STARTED, failed("cancelled")]];
  const { start } = dispatchOver([replica]);
  for (let calls = 0; calls < 5; calls++) {
    const call = start();
    await soon();
    await read(call);
  }
  expect(replica.deadlines).toHaveLength(5);
});

test("dispatch: a cancelled answer does not reset the count of failures", async () => {
  const replica = new ScriptedReplica("a");
  const crash = [STARTED, failed("server_error")];
  replica.answers = [crash, crash, [STARTED, failed("cancelled")], crash, [STARTED, DONE]];
  const { start } = dispatchOver([replica], { maxWaitMs: 9_000 });
  for (let calls = 0; calls < 4; calls++) {
    const call = start();
    await soon();
    await read(call);
  }
  start();
  await pass(999);
  expect(replica.deadlines).toHaveLength(4);
});

test("dispatch: an answer without a first event is a failure of the worker", async () => {
  const replica = new ScriptedReplica("a");
  replica.answers = [[]];
  const { start } = dispatchOver([replica]);
  const call = start();
  await soon();
  expect(call.error).toMatchObject({ code: "server_error", node: "a" });
});

test("dispatch: each failed engine counts by its own node's reports", async () => {
  const [a, b] = [new ScriptedReplica("a"), new ScriptedReplica("b")];
  a.reports = 50;
  for (const replica of [a, b]) replica.answers = [[failed("engine_failed")]];
  const { start, change } = dispatchOver([a, b]);
  const call = start();
  await soon();
  for (const replica of [a, b]) replica.reports += 2;
  await change();
  expect(call.error).toMatchObject({ code: "engine_failed" });
});

/** A replica whose circuit three failures have opened. */
async function takenOut(start: ReturnType<typeof dispatchOver>["start"], replica: ScriptedReplica) {
  replica.answers = Array.from({ length: 3 }, () => [STARTED, failed("server_error")]);
  for (let failures = 0; failures < 3; failures++) {
    const call = start();
    await soon();
    await read(call);
  }
  replica.answers = [[STARTED, DONE]];
}

test("dispatch: failures before the first event take a replica out", async () => {
  const [bad, good] = [new ScriptedReplica("a"), new ScriptedReplica("b")];
  bad.answers = [[failed("engine_failed")]];
  const { start } = dispatchOver([bad, good]);
  for (let calls = 0; calls < 12; calls++) {
    const call = start();
    await soon();
    await read(call);
  }
  expect([bad, good].map(({ deadlines }) => deadlines.length)).toEqual([3, 12]);
});

test("dispatch: one call probes a replica, the next follows its answer", async () => {
  const replica = Object.assign(new ScriptedReplica("a"), { maxSequences: 4 });
  const { start, change } = dispatchOver([replica], { maxWaitMs: 9_000 });
  await takenOut(start, replica);
  replica.answers = ["hangs"];
  start();
  start();
  await pass(1_000);
  await change();
  expect(replica.deadlines).toHaveLength(4);
});

test("dispatch: an open circuit stays until its deployment is dropped", async () => {
  const replica = new ScriptedReplica("a");
  const { dispatch, start, change, source } = dispatchOver([replica], { maxWaitMs: 100 });
  await takenOut(start, replica);
  await change();
  const waiting = start();
  await pass(100);
  expect(dispatch.stats().overloaded).toBe(1);
  const message = expect.stringContaining("every replica of m failed several requests in a row");
  expect(waiting.error).toMatchObject({ code: "unavailable", message, retryAfterMs: 1_000 });
  source.replicas = [];
  await change();
  source.replicas = [replica];
  const again = start();
  await pass(100);
  expect(again.error).toMatchObject({ code: "unavailable" });
  source.replicas = [];
  source.outlook = { known: false, loading: false, message: "gone" };
  await change();
  source.replicas = [replica];
  const retried = start();
  await soon();
  expect(retried.answer?.node).toBe("a");
});

/** Whether an open circuit stays open after this many other replicas were added and removed. */
async function isOutAfter(others: number, stays: boolean): Promise<boolean> {
  const bad = new ScriptedReplica("bad");
  const { start, change, source } = dispatchOver([bad], { maxWaitMs: 100 });
  await takenOut(start, bad);
  for (let n = 0; n < others; n += 2) {
    const pair = [n, n + 1].map((name) => new ScriptedReplica(`r${name}`));
    source.replicas = stays ? [bad, ...pair] : pair;
    for (const _ of pair) start();
    await soon();
    await change();
  }
  source.replicas = [bad];
  const call = start();
  await pass(100);
  return call.answer === undefined;
}

test("dispatch: failures of present replicas are never dropped", async () => {
  expect(await isOutAfter(18, false)).toBe(true);
  expect(await isOutAfter(20, false)).toBe(false);
  expect(await isOutAfter(60, true)).toBe(true);
});
