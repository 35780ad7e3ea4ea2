import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { atLeastFourOfFive } from "@heddle/base/testing/tries";
import type { GenerateRequest } from "@heddle/contracts/engine";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { collect, deltaText, scriptedText, TestCluster } from "../../../test/test-cluster.ts";
import type { ReadyReplica } from "../../nodes/replicas/ready-replica.ts";
import { ReplicaDispatch } from "./inference-dispatch.ts";

let cluster: TestCluster;

beforeEach(async () => {
  cluster = new TestCluster();
});

afterEach(() => cluster.close());

async function start(options: {
  workers: number;
  maxSequences?: number;
  maxQueued?: number;
  master?: Parameters<TestCluster["startMaster"]>[0];
}): Promise<void> {
  await cluster.startMaster(options.master);
  const { maxSequences = 4, maxQueued = 4 } = options;
  cluster.control.deploy("m", "every-worker", { maxSequences, maxQueued });
  for (let count = 0; count < options.workers; count += 1) await cluster.startWorker();
  await cluster.workersReady("m", options.workers);
}

function load(): { running: number; waiting: number; generatedTokens: number } {
  const replicas = cluster.link.directory.nodes().flatMap((node) => node.replicas);
  const sum = (key: "running" | "waiting" | "generatedTokens") =>
    replicas.reduce((total, replica) => total + replica.load[key], 0);
  return {
    running: sum("running"),
    waiting: sum("waiting"),
    generatedTokens: sum("generatedTokens"),
  };
}

describe("cancellation", () => {
  // holds: api-disconnect
  test("leaving the answer frees its slot within a second", async () => {
    await start({ workers: 1 });
    await atLeastFourOfFive(async () => {
      const answer = await cluster.start("m", "@tokens=100000 @every=2");
      let leftMs = 0;
      for await (const event of answer.events) {
        leftMs = performance.now();
        if (event.type === "delta" && load().running === 1) break;
      }
      await eventually(() => load().running === 0, "the slot is free");
      return performance.now() - leftMs < 1_000;
    });
  });

  test("the signal ends the answer with a cancelled event and frees the slot", async () => {
    await start({ workers: 1 });
    const controller = new AbortController();
    const signal = controller.signal;
    const answer = await cluster.start("m", "@tokens=100000 @every=2", { signal });
    setTimeout(() => controller.abort(), 20);
    const events = await collect(answer.events);
    expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "cancelled" } });
    await eventually(() => load().running === 0, "the slot is free");
  });

  test("a call cancelled in the queue leaves it", async () => {
    await start({ workers: 1, maxSequences: 1, maxQueued: 0 });
    await cluster.start("m", "@tokens=100000 @every=5");
    const controller = new AbortController();
    const waiting = held(cluster.start("m", "@tokens=1", { signal: controller.signal }));
    await eventually(() => cluster.link.stats().queued === 1, "it waits");
    controller.abort();
    await expect(waiting).rejects.toMatchObject({ code: "cancelled" });
    expect(cluster.link.stats().queued).toBe(0);
  });
});

describe("limits", () => {
  test("a full queue refuses with overloaded and a wait; queued calls go in turn", async () => {
    await start({ workers: 1, maxSequences: 1, maxQueued: 0, master: { maxQueued: 2 } });
    const running = await cluster.start("m", "@tokens=50 @every=5");
    const waiting = held(Promise.all([1, 2].map(() => cluster.start("m", "@tokens=1"))));
    await eventually(() => cluster.link.stats().queued === 2, "two wait");
    const error = await cluster.start("m", "@tokens=1").catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: "overloaded", model: "m" });
    expect((error as { retryAfterMs: number }).retryAfterMs).toBeGreaterThanOrEqual(1_000);
    await collect(running.events);
    for (const { events } of await waiting) expect(deltaText(await collect(events))).toBe("t0 ");
    expect(cluster.link.stats().overloaded).toBe(1);
  });

  test("a queue wait above the limit ends with overloaded", async () => {
    await start({ workers: 1, maxSequences: 1, maxQueued: 0, master: { maxWaitMs: 50 } });
    await cluster.start("m", "@tokens=100000 @every=5");
    await expect(cluster.start("m", "x")).rejects.toMatchObject({ code: "overloaded" });
  });

  test("the deadline applies in the queue, in the engine, and to a hanging engine", async () => {
    await start({ workers: 1, maxSequences: 1, maxQueued: 0 });
    // Long enough that the queued call's deadline passes first on a machine that stalls.
    const answer = await cluster.start("m", "@tokens=100000 @every=5", { deadlineMs: 3_000 });
    const queued = cluster.start("m", "x", { deadlineMs: 50 });
    await expect(queued).rejects.toMatchObject({ code: "deadline_exceeded" });
    const last = (await collect(answer.events)).at(-1);
    expect(last).toMatchObject({ type: "failed", error: { code: "deadline_exceeded" } });
    const hung = cluster.start("m", "@hang", { deadlineMs: 50 });
    await expect(hung).rejects.toMatchObject({ code: "deadline_exceeded" });
  });

  // holds: api-wait-deadline
  test("a worker gets the deadline less the wait in the queue", async () => {
    const room = { used: 1 };
    const given: number[] = [];
    let changed: () => void = () => undefined;
    const replica: ReadyReplica = {
      node: "n",
      nodeName: "n",
      features: [],
      isDivided: false,
      holder: "h",
      reports: 1,
      calls: 1,
      maxSequences: 1,
      maxQueued: 0,
      get used() {
        return room.used;
      },
      usedBy: () => 0,
      yielding: () => 0,
      start: (_call, deadlineMs) => {
        given.push(deadlineMs);
        return (async function* () {
          yield { type: "failed", id: 1, error: { code: "invalid_value", message: "enough" } };
        })();
      },
    };
    const clock = { nowMs: 0 };
    const dispatch = new ReplicaDispatch({
      replicas: {
        ready: () => [replica],
        outlook: () => ({ known: true, loading: false, message: "" }),
        onChange: (listener) => {
          changed = listener;
          return () => undefined;
        },
      },
      clock: { monotonicMs: () => clock.nowMs, wallMs: () => clock.nowMs },
      random: () => 0.5,
      maxQueued: 8,
      maxWaitMs: 60_000,
      maxLoadingWaitMs: 60_000,
    });
    const request = { choices: 1, input: { kind: "text", text: "x" } } as GenerateRequest;
    const call = {
      requestId: "r",
      deployment: "m",
      request,
      fairKey: "k",
      cacheSalt: "",
      priority: 0,
    };
    const waiting = dispatch.start({ ...call, deadlineMs: 10_000 }, new AbortController().signal);
    clock.nowMs += 7_500;
    room.used = 0;
    changed();
    await expect(waiting).rejects.toMatchObject({ code: "invalid_value" });
    expect(given).toEqual([2_500]);
  });

  test("64 answers stream at once, each complete and its own", async () => {
    await start({ workers: 2, maxSequences: 32, maxQueued: 0 });
    const lengths = Array.from({ length: 64 }, (_, index) => 20 + index);
    const texts = await Promise.all(
      lengths.map(async (tokens) => {
        const answer = await cluster.start("m", `@tokens=${tokens} @every=1`);
        return deltaText(await collect(answer.events));
      }),
    );
    expect(texts).toEqual(lengths.map(scriptedText));
  });

  test("a slow reader stalls only itself, in a bounded window, and loses nothing", async () => {
    await start({ workers: 1 });
    const slow = await cluster.start("m", "@tokens=3000");
    await eventually(() => load().generatedTokens === 3_000, "its engine is done");
    const quick = await cluster.start("m", "@tokens=50");
    expect(deltaText(await collect(quick.events))).toBe(scriptedText(50));
    const events = await collect(slow.events);
    expect(deltaText(events)).toBe(scriptedText(3_000));
    // A window of single tokens, then the rest merged into few events.
    expect(events.length).toBeLessThan(300);
    expect(events.at(-1)).toMatchObject({ type: "done", usage: { completionTokens: 3_000 } });
  });

  // holds: api-fairness
  test("an unread answer holds no slot once the engine has finished it", async () => {
    await start({ workers: 1, maxSequences: 1, maxQueued: 0 });
    const unread = await cluster.start("m", "@tokens=3000");
    const quick = await cluster.start("m", "@tokens=5");
    expect(deltaText(await collect(quick.events))).toBe(scriptedText(5));
    expect(deltaText(await collect(unread.events))).toBe(scriptedText(3_000));
  });

  // holds: api-fairness
  test("fairness: one key's calls block no other, in engine and queue", async () => {
    await start({ workers: 1, maxSequences: 4, maxQueued: 64, master: { maxQueued: 3 } });
    const controller = new AbortController();
    const many = { fairKey: "many", signal: controller.signal };
    const ofMany = Array.from({ length: 11 }, () =>
      cluster.start("m", "@tokens=100000 @every=5", many).catch((error: unknown) => error),
    );
    await eventually(() => cluster.link.stats().queued === 3, "its calls fill the queue");
    await eventually(() => load().running === 4 && load().waiting === 4, "and the engine");
    const few = held(cluster.start("m", "@tokens=5", { fairKey: "few" }));
    expect(await ofMany.at(-1)).toMatchObject({ code: "overloaded" });
    await eventually(() => load().waiting === 5, "the engine has the other key's call");
    expect(cluster.link.stats().queued).toBe(2);
    controller.abort();
    expect(deltaText(await collect((await few).events))).toBe(scriptedText(5));
  });

  test("several choices arrive with their indices and one done", async () => {
    await start({ workers: 1 });
    const answer = await cluster.start("m", "@tokens=3", { request: { choices: 2 } });
    const events = await collect(answer.events);
    expect([deltaText(events, 0), deltaText(events, 1)]).toEqual([
      scriptedText(3),
      scriptedText(3),
    ]);
    expect(events.filter(({ type }) => type === "finish")).toHaveLength(2);
    expect(events.filter(({ type }) => type === "done")).toHaveLength(1);
  });
});

describe("failures", () => {
  // holds: api-retry
  test("an engine's immediate failure is retried elsewhere, then reported", async () => {
    // Ten missed heartbeats drop a worker: here after 30 s instead of the 4 s of other tests.
    await start({ workers: 2, master: { fixedTimes: { nodeHeartbeatMs: 3_000 } } });
    const failing = cluster.start("m", "@fail=oops");
    await expect(failing).rejects.toMatchObject({ code: "engine_failed", model: "m" });
    expect(cluster.link.stats().retries).toBe(1);
  });

  // holds: api-retry
  test("a failure after the first event is reported in the answer, not retried", async () => {
    await start({ workers: 2 });
    const answer = await cluster.start("m", "@tokens=9 @fail=oops @after=3");
    const events = await collect(answer.events);
    expect(deltaText(events)).toBe(scriptedText(3));
    expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "engine_failed" } });
    expect(cluster.link.stats().retries).toBe(0);
  });

  test("three failures take a replica out, and a probe returns it", async () => {
    await start({ workers: 1 });
    let beganMs = 0;
    for (let count = 0; count < 3; count += 1) {
      beganMs = performance.now();
      await expect(cluster.start("m", "@fail=oops")).rejects.toMatchObject({
        code: "engine_failed",
      });
    }
    const answer = await cluster.start("m", "@tokens=2");
    expect(performance.now() - beganMs).toBeGreaterThan(500);
    expect(deltaText(await collect(answer.events))).toBe(scriptedText(2));
  });

  test("a crashed engine fails its answers, restarts, and serves again", async () => {
    await start({ workers: 1 });
    const answer = await cluster.start("m", "@tokens=9 @crash @after=2");
    const last = (await collect(answer.events)).at(-1);
    expect(last).toMatchObject({ type: "failed", error: { code: "engine_failed" } });
    const again = await cluster.start("m", "@tokens=2");
    expect(deltaText(await collect(again.events))).toBe(scriptedText(2));
    await eventually(() => {
      const [node] = cluster.link.directory.nodes();
      return node?.replicas[0]?.load.restarts === 1;
    }, "the restart is reported");
  });

  // holds: engine-restart-wait
  test("a call on the only engine's crash waits for its restart, within a limit", async () => {
    await start({ workers: 1 });
    const stuck = cluster.start("m", "@hang").catch((error: unknown) => error);
    for (const retries of [0, 1, 2]) {
      await eventually(
        () => {
          const stats = cluster.link.stats();
          return stats.retries === retries && stats.queued === 0 && load().running === 1;
        },
        `the call is in engine ${retries + 1}`,
      );
      const crash = await cluster.start("m", "@tokens=2 @crash @after=1");
      expect((await collect(crash.events)).at(-1)).toMatchObject({ type: "failed" });
    }
    expect(await stuck).toMatchObject({ code: "engine_failed" });
    const next = await cluster.start("m", "@tokens=2");
    expect(deltaText(await collect(next.events))).toBe(scriptedText(2));
  });

  test("an unknown deployment is model_not_found, a broken one model_failed", async () => {
    await start({ workers: 1 });
    await expect(cluster.start("no", "x")).rejects.toMatchObject({ code: "model_not_found" });
    cluster.control.deploy("broken", "every-worker", {}, "missing-weights");
    const failed = cluster.start("broken", "x");
    await expect(failed).rejects.toMatchObject({
      code: "model_failed",
      retryable: false,
      message: expect.stringContaining("no source has missing-weights"),
    });
    cluster.control.deploy("cut-off", "every-worker", {}, "unreachable-weights");
    await expect(cluster.start("cut-off", "x")).rejects.toMatchObject({
      code: "unavailable",
      retryable: true,
      message: expect.stringContaining("no source of unreachable-weights is reached"),
    });
  });

  test("calls wait for a loading model, and end with model_loading at the limit", async () => {
    await start({ workers: 1, master: { fixedTimes: { maxLoadingWaitMs: 400 } } });
    cluster.control.deploy("soon", "every-worker", {}, "slow-100");
    const answer = await cluster.start("soon", "@tokens=1");
    expect(deltaText(await collect(answer.events))).toBe("t0 ");
    cluster.control.deploy("late", "every-worker", {}, "slow-2000");
    const late = cluster.start("late", "x");
    await expect(late).rejects.toMatchObject({ code: "model_loading", retryAfterMs: 400 });
  });
});

// holds: ops-node-join
describe("placement", () => {
  test("loads the wanted number of replicas and unloads the others", async () => {
    await start({ workers: 2 });
    cluster.control.deploy("one", 1);
    await cluster.workersReady("one", 1);
    cluster.control.deploy("one", 2);
    await cluster.workersReady("one", 2);
    cluster.control.remove("one");
    await cluster.workersReady("one", 0);
    await cluster.workersReady("m", 2);
    await eventually(() => {
      const replicas = cluster.link.directory.nodes().flatMap((node) => node.replicas);
      return replicas.map(({ deployment }) => deployment).join() === "m,m";
    }, "nothing else is left");
  });

  test("a changed specification restarts the engine with it", async () => {
    await start({ workers: 1, maxSequences: 4 });
    cluster.control.deploy("m", "every-worker", { maxSequences: 7 });
    await eventually(() => {
      const replica = cluster.link.directory.nodes()[0]?.replicas[0];
      return replica?.phase === "ready" && replica.load.maxSequences === 7;
    }, "the engine runs as asked");
  });

  test("the replica of a lost worker is placed on another", async () => {
    await cluster.startMaster();
    const first = await cluster.startWorker({ name: "first" });
    cluster.control.deploy("one", 1);
    await cluster.workersReady("one", 1);
    await cluster.startWorker({ name: "second" });
    await eventually(() => cluster.link.directory.nodes().length === 2, "both are attached");
    first.kill("SIGKILL");
    const answer = await cluster.start("one", "@tokens=1").catch(() => undefined);
    if (answer) await collect(answer.events);
    await eventually(() => {
      const nodes = cluster.link.directory.nodes();
      return nodes.length === 1 && nodes[0]?.replicas[0]?.phase === "ready";
    }, "the other runs it");
    expect(cluster.link.directory.nodes()[0]?.name).toBe("second");
  });
});

// holds: api-prefix-routing
test("prefix routing: finds more cached tokens than round-robin on shared prompts", async () => {
  await start({ workers: 2, maxSequences: 8 });
  const system = (group: number) => `You are assistant number ${group}. `.repeat(20);
  let cached = 0;
  let prompt = 0;
  const turns = Array.from({ length: 48 }, (_, index) => (index * 7) % 8);
  const lastTurn = new Map<number, number>();
  let cachedInTurn = 0;
  for (const [index, group] of turns.entries()) {
    const answer = await cluster.start("m", `${system(group)} @tokens=1 question ${index}`);
    for await (const event of answer.events) {
      if (event.type !== "started") continue;
      cached += event.cachedTokens;
      prompt += event.promptTokens;
      // Round-robin on the same trace, for comparison.
      const worker = index % 2;
      const key = group * 2 + worker;
      if (lastTurn.has(key)) cachedInTurn += Math.floor(system(group).length / 64) * 16;
      lastTurn.set(key, index);
    }
  }
  expect(cached / prompt).toBeGreaterThan(0.75);
  expect(cached).toBeGreaterThan(cachedInTurn * 1.1);
});
