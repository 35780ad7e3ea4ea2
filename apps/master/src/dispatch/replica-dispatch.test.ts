import type { EngineEvent } from "@heddle/contracts/engine";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { InferenceAnswer, InferenceCall } from "../ports.ts";
import { type Outlook, type ReadyReplica, ReplicaDispatch } from "./inference-dispatch.ts";

// The dispatch alone, over replicas that are told what to answer, at times that are set by hand.

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
});

afterEach(() => {
  vi.useRealTimers();
});

const DONE: EngineEvent = {
  type: "done",
  id: 1,
  usage: { promptTokens: 1, completionTokens: 1, cachedTokens: 0 },
} as EngineEvent;
const STARTED: EngineEvent = {
  type: "started",
  id: 1,
  promptTokens: 1,
  cachedTokens: 0,
  queuedMs: 0,
};
const failed = (code: string): EngineEvent =>
  ({ type: "failed", id: 1, error: { code, message: `it is ${code}`, param: "p" } }) as EngineEvent;

/** One replica; each call gets the next of its answers, and the last of them again and again. */
class Replica implements ReadyReplica {
  readonly node: string;
  readonly holder: string;
  reports = 1;
  used = 0;
  calls = 0;
  maxSequences = 1;
  maxQueued = 0;
  answers: readonly (readonly EngineEvent[])[] = [[STARTED, DONE]];
  readonly deadlines: number[] = [];
  left = 0;

  constructor(name: string) {
    this.node = name;
    this.holder = `${name}/1`;
  }

  usedBy(): number {
    return this.used;
  }

  start(_: InferenceCall, deadlineMs: number): AsyncIterable<EngineEvent> {
    const at = Math.min(this.deadlines.push(deadlineMs), this.answers.length) - 1;
    const events = this.answers[at] ?? [];
    const leave = () => this.left++;
    return (async function* () {
      try {
        yield* events;
      } finally {
        leave();
      }
    })();
  }
}

const LOADING: Outlook = { known: true, loading: true, message: "it loads" };

function dispatchOver(
  replicas: Replica[],
  options: { maxQueued?: number; maxWaitMs?: number } = {},
) {
  const source = { replicas, outlook: LOADING };
  const listeners = new Set<() => void>();
  const dispatch = new ReplicaDispatch({
    replicas: {
      ready: () => source.replicas,
      outlook: () => source.outlook,
      onChange: (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    },
    clock: { monotonicMs: () => Date.now(), wallMs: () => Date.now() },
    random: () => 1,
    ...{ maxQueued: 2, maxWaitMs: 1_000, maxLoadingWaitMs: 5_000, ...options },
  });
  /** What has become of a call, in a word, as far as it has. */
  const start = (change: Partial<InferenceCall> = {}, signal = new AbortController().signal) => {
    const told = {} as { answer?: InferenceAnswer; error?: Record<string, unknown> };
    const request = { choices: 1, input: { kind: "tokens", tokens: [1] } };
    const call = {
      requestId: "r",
      deployment: "m",
      request,
      fairKey: "a",
      deadlineMs: 0,
      priority: 0,
    };
    dispatch.start({ ...call, ...change } as InferenceCall, signal).then(
      (answer) => {
        told.answer = answer;
      },
      (error) => {
        told.error = error;
      },
    );
    return told;
  };
  const change = () => {
    for (const listener of listeners) listener();
    return soon();
  };
  return { dispatch, source, listeners, start, change };
}

/** Turns of the event loop, enough for what waits for nothing. */
async function soon(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve));
}

async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  await soon();
}

async function read({ answer }: { answer?: InferenceAnswer }): Promise<string[]> {
  const types: string[] = [];
  if (!answer) throw new Error("the call has no answer");
  for await (const { type } of answer.events) types.push(type);
  return types;
}

const full = (name: string) => Object.assign(new Replica(name), { used: 1, calls: 1 });

test("dispatch: an answer has all its events, the first among them, and tells its node", async () => {
  const { start, dispatch } = dispatchOver([new Replica("a")]);
  const call = start();
  await soon();
  expect(call.answer?.node).toBe("a");
  expect(await read(call)).toEqual(["started", "done"]);
  expect(dispatch.stats()).toEqual({ queued: 0, started: 1, retries: 0, overloaded: 0 });
});

test("dispatch: the worker gets what is left of the deadline, and none where there is none", async () => {
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

test("dispatch: a wait ends at its limit, or at the deadline where that is no later", async () => {
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

test("dispatch: for a model that loads the wait is longer, and says so at its end", async () => {
  const { start } = dispatchOver([]);
  const call = start();
  await pass(4_999);
  expect(call.error).toBeUndefined();
  await pass(1);
  expect(call.error).toMatchObject({
    ...{ code: "model_loading", message: "it loads", retryAfterMs: 5_000 },
  });
});

test.each([
  [{ known: false }, "model_not_found"],
  [{ known: true }, "unavailable"],
  [{ known: true, broken: true }, "model_failed"],
])(
  "dispatch: where waiting cannot help it is refused, at once and later: %j",
  async (how, code) => {
    const { start, source, change } = dispatchOver([full("a")]);
    const waiting = start();
    await soon();
    source.replicas = [];
    source.outlook = { ...how, loading: false, message: "no" };
    await change();
    const later = start();
    await soon();
    expect([waiting.error, later.error]).toMatchObject([
      { code, message: "no" },
      { code, message: "no" },
    ]);
  },
);

test("dispatch: a full queue refuses, with a second for each time that it fills the replicas", async () => {
  const replica = Object.assign(full("a"), { maxSequences: 2, used: 2, calls: 2 });
  const { start, dispatch } = dispatchOver([replica], { maxQueued: 3 });
  const waiting = [start(), start(), start()];
  const refused = start();
  await soon();
  expect(refused.error).toMatchObject({ code: "overloaded", retryAfterMs: 2_000 });
  expect(waiting.map(({ error }) => error)).toEqual([undefined, undefined, undefined]);
  expect(dispatch.stats()).toMatchObject({ queued: 3, overloaded: 1 });
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

test("dispatch: a call that is given up leaves the queue, and one that comes so is never sent", async () => {
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

test("dispatch: what has got its answer is not failed by the end of its wait", async () => {
  const replica = full("a");
  const { start, change } = dispatchOver([replica]);
  const caller = new AbortController();
  const call = start({ deadlineMs: 900 }, caller.signal);
  await pass(100);
  replica.used = 0;
  await change();
  await pass(9_000);
  caller.abort();
  expect(call.error).toBeUndefined();
  expect(await read(call)).toEqual(["started", "done"]);
});

test("dispatch: those that wait go in turn as soon as there is room, and none before them", async () => {
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
    ...[true, true, true],
  ]);
});

test("dispatch: a failure before the first event goes to another replica, and counts as a retry", async () => {
  const [bad, good] = [new Replica("a"), new Replica("b")];
  bad.answers = [[failed("worker_lost")]];
  const { start, dispatch } = dispatchOver([bad, good]);
  const call = start();
  await soon();
  expect(call.answer?.node).toBe("b");
  expect(dispatch.stats()).toMatchObject({ started: 1, retries: 1 });
});

test("dispatch: after three failures the last one is told, with its node", async () => {
  const replicas = ["a", "b", "c", "d"].map((name) => new Replica(name));
  for (const replica of replicas) replica.answers = [[failed("engine_failed")]];
  const { start, dispatch } = dispatchOver(replicas);
  const call = start();
  await soon();
  expect(call.error).toMatchObject({
    ...{ code: "engine_failed", node: "c", param: "p", model: "m" },
  });
  expect(replicas.map(({ deadlines }) => deadlines.length)).toEqual([1, 1, 1, 0]);
  expect(dispatch.stats()).toMatchObject({ started: 0, retries: 2 });
});

test("dispatch: what is wrong in itself, or given up meanwhile, is told at once", async () => {
  const [bad, other] = [new Replica("a"), new Replica("b")];
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

test("dispatch: a replica that refuses is asked again after a further report, eight times in all", async () => {
  const replica = new Replica("a");
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

test("dispatch: a call that waits for a report holds nobody up", async () => {
  const replica = new Replica("a");
  replica.answers = [[failed("unavailable")], [STARTED, DONE]];
  const { start } = dispatchOver([replica]);
  const waiting = start();
  await soon();
  const next = start();
  await soon();
  expect([waiting.answer, next.answer?.node]).toEqual([undefined, "a"]);
});

test("dispatch: one that failed on the only engine is told once that is known to live", async () => {
  const replica = new Replica("a");
  replica.answers = [[failed("worker_lost")], [STARTED, DONE]];
  const { start, change } = dispatchOver([replica]);
  const call = start();
  await soon();
  replica.reports++;
  await change();
  // It may have been sent before the call failed.
  expect(call.error).toBeUndefined();
  replica.reports++;
  await change();
  expect(call.error).toMatchObject({ code: "worker_lost", node: "a" });
  expect(replica.deadlines).toHaveLength(1);
});

test("dispatch: one that failed on an engine goes to that which takes its place", async () => {
  const replica = new Replica("a");
  replica.answers = [[failed("engine_failed")]];
  const { start, change, source } = dispatchOver([replica]);
  const call = start();
  await soon();
  source.replicas = [];
  await change();
  expect(call.error).toBeUndefined();
  source.replicas = [Object.assign(new Replica("a"), { holder: "a/2" })];
  await change();
  expect(call.answer?.node).toBe("a");
});

test("dispatch: three failures take a replica out, and calls wait until it may be probed", async () => {
  const replica = new Replica("a");
  const crash = [STARTED, failed("engine_failed")];
  replica.answers = [crash, crash, crash, [STARTED, DONE]];
  const { start } = dispatchOver([replica], { maxWaitMs: 9_000 });
  for (let failures = 0; failures < 3; failures++) {
    const call = start();
    await soon();
    expect(await read(call)).toEqual(["started", "failed"]);
  }
  const probe = start();
  await pass(999);
  expect(replica.deadlines).toHaveLength(3);
  await pass(1);
  await soon();
  expect(await read(probe)).toEqual(["started", "done"]);
});

test("dispatch: a whole answer between failures makes them count anew", async () => {
  const replica = new Replica("a");
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

test("dispatch: refusals and cancelled answers do not take a replica out", async () => {
  const replica = new Replica("a");
  replica.answers = [[STARTED, failed("cancelled")]];
  const { start } = dispatchOver([replica]);
  for (let calls = 0; calls < 5; calls++) {
    const call = start();
    await soon();
    await read(call);
  }
  expect(replica.deadlines).toHaveLength(5);
});

test("dispatch: an answer without a first event is a failure of the worker", async () => {
  const replica = new Replica("a");
  replica.answers = [[]];
  const { start } = dispatchOver([replica]);
  const call = start();
  await soon();
  expect(call.error).toMatchObject({ code: "server_error", node: "a" });
});

test("dispatch: leaving an answer leaves the worker's", async () => {
  const replica = new Replica("a");
  const { start } = dispatchOver([replica]);
  const call = start();
  await soon();
  const iterator = call.answer?.events[Symbol.asyncIterator]();
  expect(await iterator?.next()).toMatchObject({ done: false, value: { type: "started" } });
  expect(replica.left).toBe(0);
  expect(await iterator?.return?.()).toEqual({ done: true, value: undefined });
  expect(replica.left).toBe(1);
});

test("dispatch: equal replicas take turns, the one that was chosen longest ago first", async () => {
  const replicas = ["a", "b", "c"].map((name) => new Replica(name));
  const { start } = dispatchOver(replicas);
  const nodes: (string | undefined)[] = [];
  for (let calls = 0; calls < 6; calls++) {
    const call = start({ request: { choices: 1, input: { kind: "tokens", tokens: [] } } as never });
    await soon();
    nodes.push(call.answer?.node);
  }
  expect(nodes).toEqual(["a", "b", "c", "a", "b", "c"]);
});

test("dispatch: a prompt goes where its beginning was served before", async () => {
  const replicas = ["a", "b"].map((name) => new Replica(name));
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

test("dispatch: at its end those that wait are told, and changes mean nothing to it", async () => {
  const replica = full("a");
  const { start, dispatch, listeners } = dispatchOver([replica]);
  const call = start();
  await soon();
  dispatch.close();
  await soon();
  expect(call.error).toMatchObject({ code: "unavailable" });
  expect(listeners.size).toBe(0);
});

test("dispatch: deployments have queues of their own", async () => {
  const { start, dispatch } = dispatchOver([full("a")]);
  const calls = [start(), start(), start({ deployment: "n" })];
  await soon();
  expect(calls.map(({ error }) => error)).toEqual([undefined, undefined, undefined]);
  expect(dispatch.stats().queued).toBe(3);
});
