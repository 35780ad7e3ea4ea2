import { getEventListeners } from "node:events";
import { priorityNumber } from "@heddle/contracts/call-priority";
import type { EngineEvent, EngineRequest } from "@heddle/contracts/engine";
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
import type { PartPlace } from "../../nodes/replicas/ready-replica.ts";
import { CallWait } from "./inference-port.ts";

beforeEach(useTimesByHand);

afterEach(() => {
  vi.useRealTimers();
});

test("dispatch: an answer has all its events and its node", async () => {
  const { start, dispatch } = dispatchOver([new ScriptedReplica("a")]);
  const call = start();
  await soon();
  expect(call.answer?.node).toBe("a");
  expect(await read(call)).toEqual(["started", "done"]);
  expect(dispatch.stats()).toEqual({
    queued: 0,
    started: 1,
    retries: 0,
    continued: 0,
    overloaded: 0,
  });
});

test("dispatch: the load has the time to the first token of calls above batch", async () => {
  const replica = Object.assign(new ScriptedReplica("a"), { maxSequences: 4 });
  const delta = { type: "delta", id: 1 } as EngineEvent;
  replica.answers = [[STARTED, delta, delta, DONE]];
  const { start, dispatch } = dispatchOver([replica]);
  const answered = async (priority: number, waitMs: number) => {
    const call = start({ priority });
    await soon();
    await pass(waitMs);
    for await (const { type } of call.answer?.events ?? []) if (type === "delta") await pass(50);
    return dispatch.loadOf("m");
  };
  expect(await answered(priorityNumber("batch"), 700)).toEqual({ queued: 0, ttftMs: undefined });
  expect(await answered(priorityNumber("normal"), 300)).toEqual({ queued: 0, ttftMs: 300 });
});

const adapted = {
  request: {
    choices: 1,
    input: { kind: "tokens", tokens: [1] },
    adapter: { weights: { key: "l", file: "l.gguf", sources: [] }, scale: 1 },
  } as unknown as EngineRequest,
};

test("dispatch: a call of an adapter goes to a worker that knows adapters alone", async () => {
  const old = new ScriptedReplica("old");
  const present = Object.assign(full("present"), { features: ["adapters"] });
  const { start, change } = dispatchOver([old, present]);
  const call = start(adapted);
  const plain = start({ fairKey: "b" });
  await soon();
  // The present worker is full, and its call waits for it.
  expect([call.answer, call.error, plain.answer?.node]).toEqual([undefined, undefined, "old"]);
  present.used = 0;
  await change();
  expect(call.answer?.node).toBe("present");
});

test("dispatch: a deterministic call goes to a whole replica, if there is one", async () => {
  const [divided, whole] = [full("divided"), full("whole")];
  Object.assign(divided, { isDivided: true, used: 0 });
  const { start, source, change } = dispatchOver([divided, whole]);
  const request = { choices: 1, deterministic: true } as unknown as EngineRequest;
  const call = start({ request });
  await soon();
  // The whole one is full, and the call waits for it.
  expect(call.answer).toBeUndefined();
  whole.used = 0;
  await change();
  expect(call.answer?.node).toBe("whole");
  // Where there is none, the reason of the divided one is the answer.
  source.replicas = [divided];
  divided.answers = [[failed("invalid_value")]];
  const refused = start({ request });
  await soon();
  expect(refused.error).toMatchObject({ code: "invalid_value" });
});

test("dispatch: a call of an adapter is refused where all workers are older", async () => {
  const old = new ScriptedReplica("old");
  const { start, source, change } = dispatchOver([old]);
  const refused = start(adapted);
  await soon();
  const error = { code: "unavailable", message: expect.stringContaining("upgrade old") };
  expect(refused.error).toMatchObject(error);
  source.replicas = [];
  const waiting = start(adapted);
  await soon();
  expect(waiting.error).toBeUndefined();
  source.replicas = [old];
  await change();
  expect(waiting.error).toMatchObject(error);
  expect(old.deadlines).toEqual([]);
});

test("dispatch: a call that no worker understands takes no place in a full queue", async () => {
  const { start } = dispatchOver([full("old")]);
  const crowd = [start(), start()];
  await soon();
  const refused = start({ ...adapted, fairKey: "b" });
  await soon();
  expect(refused.error).toMatchObject({ message: expect.stringContaining("upgrade old") });
  expect(crowd.map(({ error }) => error)).toEqual([undefined, undefined]);
});

test("dispatch: the worker gets the rest of the deadline", async () => {
  const replica = full("a");
  const { start, change } = dispatchOver([replica]);
  const calls = [start({ deadlineMs: 900 }), start()];
  await pass(400);
  replica.used = 0;
  replica.maxSequences = 9;
  await change();
  expect(replica.deadlines).toEqual([500, 0]);
  expect(calls.map(({ answer }) => answer?.node)).toEqual(["a", "a"]);
});

test("dispatch: a wait ends at its limit, or at the deadline", async () => {
  const { start, dispatch } = dispatchOver([full("a")]);
  const patient = start();
  const hurried = start({ deadlineMs: 1_000 });
  await pass(999);
  expect([patient.error, hurried.error]).toEqual([undefined, undefined]);
  await pass(1);
  expect(patient.error).toMatchObject({ code: "overloaded", retryAfterMs: 3_000 });
  expect(hurried.error).toMatchObject({ code: "deadline_exceeded" });
  expect(dispatch.stats()).toMatchObject({ queued: 0, overloaded: 1 });
});

test("dispatch: a batch call waits beyond the limit, but not beyond its deadline", async () => {
  const { start } = dispatchOver([full("a")]);
  const priority = priorityNumber("batch");
  const [patient, hurried] = [start({ priority }), start({ priority, deadlineMs: 60_000 })];
  await pass(59_999);
  expect([patient.error, hurried.error]).toEqual([undefined, undefined]);
  await pass(1);
  expect(patient.error).toBeUndefined();
  expect(hurried.error).toMatchObject({ code: "deadline_exceeded" });
});

test("dispatch: the wait for a loading model is longer, with its own error", async () => {
  const { start } = dispatchOver([]);
  const call = start();
  await pass(4_999);
  expect(call.error).toBeUndefined();
  await pass(1);
  expect(call.error).toMatchObject({
    code: "model_loading",
    message: "it loads",
    retryAfterMs: 5_000,
  });
});

test.each([
  [{ known: false }, "model_not_found"],
  [{ known: true }, "unavailable"],
  [{ known: true, broken: true }, "model_failed"],
])("dispatch: where waiting cannot help a call is refused: %j", async (how, code) => {
  const { start, source, change } = dispatchOver([full("a")]);
  const waiting = start();
  await soon();
  source.replicas = [];
  source.outlook = { ...how, loading: false, message: "no" };
  await change();
  const wait = new CallWait();
  const later = start({}, undefined, wait);
  await soon();
  expect(wait.firstPosition).toBeUndefined();
  expect([waiting.error, later.error]).toMatchObject([
    { code, message: "no", model: "m" },
    { code, message: "no", model: "m" },
  ]);
});

test("dispatch: a full queue refuses with a retry time", async () => {
  const replica = Object.assign(full("a"), { maxSequences: 2, used: 2, calls: 2 });
  const { start, dispatch } = dispatchOver([replica], { maxQueued: 3 });
  const waiting = [start(), start(), start()];
  const refused = start();
  await soon();
  expect(refused.error).toMatchObject({ code: "overloaded", retryAfterMs: 2_000 });
  expect(waiting.map(({ error }) => error)).toEqual([undefined, undefined, undefined]);
  expect(dispatch.stats()).toMatchObject({ queued: 3, overloaded: 1 });
});

test("dispatch: a call that makes room has its place, also after the limit was lowered", async () => {
  const replica = full("a");
  const { start, change, limits, dispatch } = dispatchOver([replica], { maxQueued: 4 });
  const crowd = [start(), start(), start(), start()];
  await soon();
  limits.maxQueued = 2;
  const other = start({ fairKey: "b" });
  await soon();
  expect(crowd[3]?.error).toMatchObject({ code: "overloaded" });
  expect(dispatch.stats().queued).toBe(4);
  Object.assign(replica, { used: 0, maxSequences: 9 });
  await change();
  expect(other.answer?.node).toBe("a");
});

test("dispatch: a key that crowds a full queue makes room for another", async () => {
  const { start, dispatch } = dispatchOver([full("a")]);
  const crowd = [start(), start()];
  const other = start({ fairKey: "b" });
  await soon();
  expect(crowd[1]?.error).toMatchObject({ code: "overloaded" });
  expect([crowd[0]?.error, other.error]).toEqual([undefined, undefined]);
  expect(dispatch.stats()).toMatchObject({ queued: 2 });
});

test("dispatch: a cancelled call leaves the queue, or is never sent", async () => {
  const replica = full("a");
  const { start, dispatch, change } = dispatchOver([replica]);
  const caller = new AbortController();
  const call = start({}, caller.signal);
  await soon();
  caller.abort();
  await soon();
  expect(call.error).toMatchObject({ code: "cancelled" });
  expect(dispatch.stats().queued).toBe(0);
  replica.used = 0;
  await change();
  const late = start({}, AbortSignal.abort());
  await soon();
  expect(late.error).toMatchObject({ code: "cancelled" });
  expect(replica.deadlines).toEqual([]);
});

test("dispatch: an answered call does not fail at the end of its wait", async () => {
  const replica = full("a");
  const { start, change, dispatch } = dispatchOver([replica]);
  const caller = new AbortController();
  const call = start({}, caller.signal);
  await pass(100);
  replica.used = 0;
  await change();
  await pass(9_000);
  expect(getEventListeners(caller.signal, "abort")).toEqual([]);
  caller.abort();
  expect([call.error, dispatch.stats().overloaded]).toEqual([undefined, 0]);
  expect(await read(call)).toEqual(["started", "done"]);
});

test("dispatch: queued calls go in turn, and new ones after them", async () => {
  const replica = full("a");
  const { start, change } = dispatchOver([replica], { maxQueued: 9 });
  const [first, second] = [start(), start()];
  await soon();
  replica.used = 0;
  const jumper = start();
  expect(replica.deadlines).toEqual([]);
  replica.maxSequences = 2;
  await change();
  await soon();
  expect([first, second, jumper].map(({ answer }) => answer !== undefined)).toEqual([
    true,
    true,
    true,
  ]);
});

test("dispatch: leaving an answer cancels it on the worker", async () => {
  const replica = new ScriptedReplica("a");
  const { start } = dispatchOver([replica]);
  const call = start();
  await soon();
  const iterator = call.answer?.events[Symbol.asyncIterator]();
  expect(await iterator?.next()).toMatchObject({ done: false, value: { type: "started" } });
  expect(replica.left).toBe(0);
  expect(await iterator?.return?.()).toEqual({ done: true, value: undefined });
  expect(replica.left).toBe(1);
});

test("dispatch: equal replicas take turns, least recently chosen first", async () => {
  const replicas = ["a", "b", "c"].map((name) => new ScriptedReplica(name));
  const { start } = dispatchOver(replicas);
  const nodes: (string | undefined)[] = [];
  for (let calls = 0; calls < 6; calls++) {
    const call = start({ request: { choices: 1, input: { kind: "tokens", tokens: [] } } as never });
    await soon();
    nodes.push(call.answer?.node);
  }
  expect(nodes).toEqual(["a", "b", "c", "a", "b", "c"]);
});

test("dispatch: a prompt goes to the replica that has served its prefix", async () => {
  const replicas = ["a", "b"].map((name) => new ScriptedReplica(name));
  const { start } = dispatchOver(replicas);
  const nodes: (string | undefined)[] = [];
  for (const token of [1, 2, 1, 2, 2, 1]) {
    const tokens = Array.from({ length: 64 }, () => token);
    const call = start({ request: { choices: 1, input: { kind: "tokens", tokens } } as never });
    await soon();
    nodes.push(call.answer?.node);
  }
  expect(nodes).toEqual(["a", "b", "a", "b", "b", "a"]);
});

test("dispatch: parts of one call go apart, and each knows its replica", async () => {
  const replicas = ["a", "b"].map((name) => new ScriptedReplica(name));
  const { start } = dispatchOver(replicas);
  const tokens = Array.from({ length: 64 }, () => 1);
  const request = { choices: 1, input: { kind: "tokens", tokens } } as never;
  const siblings: PartPlace[] = [];
  const nodes: (string | undefined)[] = [];
  for (let part = 0; part < 2; part++) {
    const place: PartPlace = { holder: undefined, sequences: 1, siblings };
    siblings.push(place);
    const call = start({ request, place });
    await soon();
    nodes.push(call.answer?.node);
  }
  expect(nodes).toEqual(["a", "b"]);
  expect(new Set(siblings.map(({ holder }) => holder)).size).toBe(2);
  expect(siblings.map(({ holder }) => holder)).not.toContain(undefined);
});

test("dispatch: closing fails the queued calls and ignores later changes", async () => {
  const replica = full("a");
  const { start, dispatch, listeners } = dispatchOver([replica]);
  const call = start();
  await soon();
  dispatch.close();
  await soon();
  expect(call.error).toMatchObject({ code: "unavailable" });
  expect(listeners.size).toBe(0);
});

test("dispatch: deployments have separate queues", async () => {
  const { start, dispatch } = dispatchOver([full("a")]);
  const calls = [start(), start(), start({ deployment: "n" })];
  await soon();
  expect(calls.map(({ error }) => error)).toEqual([undefined, undefined, undefined]);
  expect(dispatch.stats().queued).toBe(3);
});

test("dispatch: a key that has used its share waits and blocks no other", async () => {
  const replica = Object.assign(full("a"), { maxSequences: 2, maxQueued: 8, used: 4, calls: 4 });
  const { start } = dispatchOver([replica]);
  const waiting = start();
  await soon();
  const other = start({ fairKey: "b" });
  await soon();
  expect([waiting.answer, other.answer?.node]).toEqual([undefined, "a"]);
});
