// holds: serving-priorities, serving-queue-place

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { postChat } from "../../test/http.ts";
import {
  dispatchOver,
  full,
  pass,
  ScriptedReplica,
  soon,
  useTimesByHand,
} from "../../test/scripted-replicas.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";
import { FairQueue } from "./dispatch/fair-queue.ts";
import { CallWait, type WaitView } from "./dispatch/inference-port.ts";

const AGING_MS = 30_000;
const base = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "one two" }] };

describe("priorities of calls over HTTP", () => {
  let server: TestMaster;
  beforeAll(async () => {
    server = await startTestMaster({ fixedTimes: { streamProgressMs: 50 } });
  });
  afterAll(() => server.master.close());

  it.each([
    [{}, {}, 0, "default"],
    [{ "x-heddle-priority": "batch" }, {}, -1_000, "flex"],
    [{ "x-heddle-priority": "interactive" }, { priority: 3 }, 997, "priority"],
    [{}, { service_tier: "flex" }, -1_000, "flex"],
    [{ "x-heddle-priority": "batch" }, { service_tier: "auto" }, -1_000, "flex"],
    [{ "x-heddle-priority": "batch" }, { service_tier: "default" }, 0, "default"],
  ])("priority: %j with %j reaches the dispatch", async (headers, body, number, tier) => {
    const reply = await postChat(server, { ...base, ...body }, { headers });
    expect(await reply.json()).toMatchObject({ service_tier: tier });
    expect(server.dispatch.calls.at(-1)?.priority).toBe(number);
  });

  it("priority: only a key with the permission may raise its calls", async () => {
    const { text: key } = await server.addKey({ scopes: ["inference:create"] });
    const of = (priority: string) => ({ key, headers: { "x-heddle-priority": priority } });
    const refused = await postChat(server, base, of("interactive"));
    expect([refused.status, await refused.json()]).toMatchObject([
      403,
      { error: { code: "permission_denied", param: "x-heddle-priority" } },
    ]);
    const tier = await postChat(server, { ...base, service_tier: "priority" }, { key });
    expect(await tier.json()).toMatchObject({ error: { param: "service_tier" } });
    const lower = await postChat(server, base, of("batch"));
    expect(lower.status).toBe(200);
  });

  it("priority: an unknown one is refused with its header's name", async () => {
    const headers = { "x-heddle-priority": "urgent" };
    const reply = await postChat(server, base, { headers });
    expect([reply.status, await reply.json()]).toMatchObject([
      400,
      { error: { code: "invalid_value", param: "x-heddle-priority" } },
    ]);
  });

  it("waiting call: a stream shows its place in comments, an answer in its headers", async () => {
    const view: WaitView = {
      state: "loading",
      position: 3,
      waiting: 4,
      waitedMs: 70,
      detail: "m is pulling",
      pulledBytes: 5,
      totalBytes: 10,
    };
    server.dispatch.script = { startAfter: delay(600), waits: view };
    const stream = await postChat(server, { ...base, stream: true });
    const text = await stream.text();
    const comments = text.split("\n").filter((line) => line.startsWith(": heddle.progress "));
    expect(comments.length).toBeGreaterThan(1);
    expect(JSON.parse(comments[0]?.slice(18) ?? "")).toEqual({
      state: "loading",
      position: 3,
      waiting: 4,
      waited_ms: 70,
      detail: "m is pulling",
      pulled_bytes: 5,
      total_bytes: 10,
    });
    expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
    server.dispatch.script = { startAfter: delay(20), waits: view };
    const whole = await postChat(server, base);
    expect(whole.headers.get("x-heddle-queue-position")).toBe("3");
    expect(whole.headers.get("x-heddle-queued-ms")).toBe("70");
    server.dispatch.script = {};
    const direct = await postChat(server, base);
    expect(direct.headers.has("x-heddle-queue-position")).toBe(false);
  });
});

describe("priorities in the queue of a master", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it("fair queue: a ticket's place is where it leaves the queue", () => {
    const queue = new FairQueue<{ fairKey: string; priority: number; name: string }>();
    const add = (name: string, fairKey: string, priority = 0) =>
      queue.push({ fairKey, priority, name });
    for (const name of ["a1", "a2", "a3"]) add(name, "a");
    add("b1", "b");
    add("low", "a", -1_000);
    add("high", "c", 1_000);
    add("b2", "b");
    const places = queue
      .tickets()
      .map((ticket) => [ticket.name, queue.positionOf(ticket)] as const)
      .sort(([, a], [, b]) => (a ?? 0) - (b ?? 0));
    const left: string[] = [];
    for (let next = queue.peek(); next; next = queue.peek()) {
      queue.remove(next);
      left.push(next.name);
    }
    expect(places.map(([name]) => name)).toEqual(left);
    expect(places.map(([, place]) => place)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  it("fair queue: a ticket of a low priority gets its turn after its wait", () => {
    const queue = new FairQueue<{ fairKey: string; priority: number; arrivedMs: number }>();
    const low = { fairKey: "low", priority: -1_000, arrivedMs: 0 };
    queue.push(low);
    queue.push({ fairKey: "k", priority: 0, arrivedMs: 0 });
    queue.age(AGING_MS - 1_000);
    expect(queue.peek()).not.toBe(low);
    queue.push({ fairKey: "k", priority: 1_000, arrivedMs: 2 * AGING_MS });
    queue.age(2 * AGING_MS);
    const order = [];
    for (let next = queue.peek(); next; next = queue.peek()) {
      queue.remove(next);
      order.push(next.priority);
    }
    expect(order).toEqual([1_000, -1_000, 0]);
    expect([queue.size, queue.remove(low)]).toEqual([0, false]);
  });

  it("dispatch: an interactive call passes a full batch, which its engine preempts", async () => {
    useTimesByHand();
    const replica = new ScriptedReplica("a");
    replica.maxSequences = 2;
    replica.maxQueued = 8;
    replica.used = 4;
    replica.calls = 4;
    replica.yielding = (priority) => (priority >= 0 ? 4 : 0);
    const { start, dispatch } = dispatchOver([replica]);
    const batch = start({ priority: -1_000 });
    await soon();
    expect(dispatch.stats().queued).toBe(1);
    expect(dispatch.queues()).toMatchObject([
      { deployment: "m", waiting: 1, byPriority: { batch: 1, normal: 0, interactive: 0 } },
    ]);
    const urgent = start({ priority: 1_000 });
    await soon();
    expect([batch.answer, urgent.answer?.node]).toEqual([undefined, "a"]);
  });

  it("dispatch: a full queue gives up a batch call for a normal one", async () => {
    useTimesByHand();
    const { start } = dispatchOver([full("a")], { maxQueued: 1 });
    const batch = start({ priority: -1_000 });
    const normal = start({ fairKey: "b" });
    await soon();
    expect([batch.error, normal.error]).toMatchObject([{ code: "overloaded" }, undefined]);
  });

  it("dispatch: a batch call waits longer than others for its turn", async () => {
    useTimesByHand();
    const { start } = dispatchOver([full("a")]);
    const [batch, normal] = [start({ priority: -1_000 }), start()];
    await pass(5_000);
    expect([batch.error, normal.error]).toMatchObject([undefined, { code: "overloaded" }]);
  });

  it("wait of a call: its requests share it, and the longest counts", () => {
    const wait = new CallWait();
    const of = (position: number, waitedMs: number) => () =>
      ({ state: "queued", position, waiting: 9, waitedMs }) as const;
    const [first, second] = [wait.begin(of(4, 10)), wait.begin(of(5, 30))];
    first();
    expect(wait.view?.position).toBe(5);
    second();
    expect([wait.view, wait.firstPosition, wait.waitedMs]).toEqual([undefined, 4, 30]);
  });
});
