import type { EngineEvent, GenerateRequest } from "@heddle/contracts/engine";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  DONE,
  dispatchOver,
  failed,
  pass,
  ScriptedReplica,
  STARTED,
  soon,
  useTimesByHand,
} from "../../../test/scripted-replicas.ts";

beforeEach(useTimesByHand);

afterEach(() => {
  vi.useRealTimers();
});

const replicaOf = (name: string, ...answers: ScriptedReplica["answers"]) =>
  Object.assign(new ScriptedReplica(name), { answers, features: ["continuation"] });
const delta = (text: string, tokenIds: readonly number[], choice = 0): EngineEvent => {
  const plain = { type: "delta", id: 1, choice, text, tokens: tokenIds.length } as const;
  return tokenIds.length > 0 ? { ...plain, tokenIds } : plain;
};
const finish = (choice = 0): EngineEvent => ({ type: "finish", id: 1, choice, reason: "stop" });
const request = {
  choices: 1,
  input: { kind: "tokens", tokens: [1] },
  stop: [],
  format: "text",
} as unknown as GenerateRequest;
const LOST = failed("worker_lost");

/** Reads all events of the answer once it is there; the rest comes as time passes. */
async function readAll({ answer }: { answer?: { events: AsyncIterable<EngineEvent> } }) {
  if (!answer) throw new Error("the call has no answer");
  const events: EngineEvent[] = [];
  for await (const event of answer.events) events.push(event);
  return events;
}
const textOf = (events: readonly EngineEvent[]) =>
  events.map((event) => (event.type === "delta" ? event.text : "")).join("");
const typesOf = (events: readonly EngineEvent[]) => events.map(({ type }) => type);

test("continued answer: another replica gives what follows the sent tokens", async () => {
  const first = replicaOf("a", [STARTED, delta("on", [5, 6]), delta("e ", [7]), LOST]);
  const second = replicaOf("b", [STARTED, delta("two", [8]), finish(), DONE]);
  const { start, dispatch } = dispatchOver([first, second]);
  const call = start({ request });
  await soon();
  expect(call.answer?.node).toBe("a");
  const events = await readAll(call);
  expect(typesOf(events)).toEqual(["started", "delta", "delta", "delta", "finish", "done"]);
  expect(textOf(events)).toBe("one two");
  expect(call.answer?.node).toBe("b");
  const sent = [{ tokens: [5, 6, 7], characters: 4, isFinished: false }];
  expect(second.asked).toMatchObject([{ choices: 1, sent }]);
  expect(dispatch.stats()).toMatchObject({ started: 1, continued: 1, retries: 1, queued: 0 });
});

test("continued answer: another replica knows that the limit ends it", async () => {
  const cut = { ...delta("a", [1]), isCut: true } as EngineEvent;
  const first = replicaOf("a", [STARTED, cut, delta("b", [2]), LOST]);
  const second = replicaOf("b", [STARTED, finish(), DONE]);
  const call = dispatchOver([first, second]).start({ request });
  await soon();
  await readAll(call);
  expect(second.asked).toMatchObject([{ sent: [{ tokens: [1, 2], isCut: true }] }]);
});

test("continued answer: choices that have finished stay so", async () => {
  const first = replicaOf("a", [STARTED, delta("a", [1], 0), delta("b", [2], 1), finish(0), LOST]);
  const second = replicaOf("b", [STARTED, delta("c", [3], 1), finish(1), DONE]);
  const { start } = dispatchOver([first, second]);
  const call = start({ request: { ...request, choices: 2 } });
  await soon();
  await readAll(call);
  expect((second.asked[0] as GenerateRequest).sent).toMatchObject([
    { tokens: [1], isFinished: true },
    { tokens: [2], isFinished: false },
  ]);
});

test("continued answer: it waits for a replica that comes back", async () => {
  const replica = replicaOf(
    "a",
    [STARTED, delta("a", [1]), LOST],
    [STARTED, delta("b", [2]), DONE],
  );
  const { start, source, change } = dispatchOver([replica]);
  const call = start({ request });
  await soon();
  source.replicas = [];
  const reading = readAll(call);
  await pass(4_000);
  source.replicas = [replica];
  await change();
  expect(textOf(await reading)).toBe("ab");
});

test("continued answer: where no replica comes, the first failure ends it", async () => {
  const replica = replicaOf("a", [STARTED, delta("a", [1]), LOST]);
  const { start, source } = dispatchOver([replica]);
  const calls = [start({ request }), start({ request, deadlineMs: 3_000 })];
  await soon();
  source.replicas = [];
  const readings = calls.map(readAll);
  await pass(5_000);
  const lasts = (await Promise.all(readings)).map((events) => events.at(-1));
  expect(lasts).toMatchObject([
    { type: "failed", error: { code: "worker_lost", param: "p" } },
    { type: "failed", error: { code: "deadline_exceeded" } },
  ]);
});

test("continued answer: a request that ends three engines ends with the third", async () => {
  const replicas = ["a", "b", "c", "d"].map((name) =>
    replicaOf(name, [STARTED, delta(name, [1]), failed("engine_failed")]),
  );
  const { start } = dispatchOver(replicas);
  const call = start({ request });
  await soon();
  const events = await readAll(call);
  expect(textOf(events)).toBe("abc");
  expect(events.at(-1)).toMatchObject({ error: { code: "engine_failed" } });
  expect(replicas.map(({ asked }) => asked.length)).toEqual([1, 1, 1, 0]);
});

test("continued answer: none of an engine that sends no ids of tokens", async () => {
  const untold = { type: "delta", id: 1, choice: 0, text: "a", tokens: 1 } as const;
  for (const event of [untold, { ...untold, tokens: 0 }]) {
    const replicas = [replicaOf("a", [STARTED, event, LOST]), replicaOf("b", [STARTED, DONE])];
    const { start } = dispatchOver(replicas);
    const call = start({ request });
    await soon();
    expect(typesOf(await readAll(call))).toEqual(["started", "delta", "failed"]);
    expect(replicas[1]?.asked).toEqual([]);
  }
});

test("continued answer: none by a worker that would begin it again", async () => {
  const old = Object.assign(replicaOf("b", [STARTED, DONE]), { features: [] });
  const { start } = dispatchOver([replicaOf("a", [STARTED, delta("a", [1]), LOST]), old]);
  const call = start({ request });
  await soon();
  const reading = readAll(call);
  await pass(1_000);
  expect((await reading).at(-1)).toMatchObject({ error: { code: "worker_lost" } });
  expect(old.asked).toEqual([]);
});

test("continued answer: a refusal of the answer itself is final", async () => {
  const other = replicaOf("b", [STARTED, DONE]);
  const first = replicaOf("a", [STARTED, delta("a", [1]), failed("answer_failed")]);
  const { start } = dispatchOver([first, other]);
  const call = start({ request });
  await soon();
  expect(typesOf(await readAll(call))).toEqual(["started", "delta", "failed"]);
  expect(other.asked).toEqual([]);
});

test("continued answer: what was sent of a prompt is not sent again", async () => {
  const prompt: EngineEvent = { type: "prompt", id: 1, text: "p" };
  const echoed = { ...request, echo: true };
  const asked = async (change: Partial<GenerateRequest>, ...events: EngineEvent[]) => {
    const second = replicaOf("b", [STARTED, DONE]);
    const { start } = dispatchOver([replicaOf("a", [STARTED, ...events, LOST]), second]);
    const call = start({ request: { ...echoed, ...change } });
    await soon();
    await readAll(call);
    return second.asked;
  };
  expect(await asked({})).toEqual([echoed]);
  expect(await asked({}, prompt)).toEqual([{ ...echoed, echo: false }]);
  expect(await asked({ topLogprobs: 1 }, prompt)).toEqual([]);
  expect(await asked({ topLogprobs: 1 }, prompt, delta("a", [1]))).toMatchObject([
    { echo: false, sent: [{ tokens: [1] }] },
  ]);
});

test("continued answer: vectors and readings that were sent are not sent again", async () => {
  const vector = (input: number): EngineEvent => {
    return { type: "embedding", id: 1, input, values: Float32Array.of(input) };
  };
  const first = replicaOf("a", [STARTED, vector(1), LOST]);
  const second = replicaOf("b", [STARTED, vector(0), vector(1), DONE]);
  const { start } = dispatchOver([first, second]);
  const inputs = [0, 1].map((text) => ({ kind: "text", text: `${text}` }) as const);
  const call = start({ request: { kind: "embed", inputs } });
  await soon();
  expect(await readAll(call)).toEqual([STARTED, vector(1), vector(0), DONE]);
});

test("continued answer: leaving it while it waits cancels what then begins", async () => {
  const replica = replicaOf("a", [STARTED, delta("a", [1]), LOST], [STARTED, DONE]);
  const { start, source, change } = dispatchOver([replica]);
  const call = start({ request });
  await soon();
  const iterator = call.answer?.events[Symbol.asyncIterator]();
  await iterator?.next();
  await iterator?.next();
  source.replicas = [];
  const next = iterator?.next();
  await soon();
  await iterator?.return?.();
  source.replicas = [replica];
  const { left } = replica;
  await change();
  await next;
  expect(replica.left).toBe(left + 1);
});
