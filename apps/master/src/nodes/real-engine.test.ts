// holds: api-cached-tokens, ops-node-join

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, expect, test } from "vitest";
import { collect, deltaText, TestCluster, textRequest } from "../../test/test-cluster.ts";

/** The whole path with a real worker, a real engine process and the built-in tiny model. */
let cluster: TestCluster;

beforeAll(async () => {
  cluster = new TestCluster();
  await cluster.startMaster();
  cluster.control.deploy("tiny", "every-worker", { threads: 1, contextTokens: 512 }, "tiny", [
    "builtin://tiny",
  ]);
});

afterAll(() => cluster.close());

test("engine: greedy answers are equal, and the second hits the prompt cache", async () => {
  await cluster.startRealWorker("real");
  await cluster.workersReady("tiny", 1);
  const prompt = "The quick brown fox jumps over the lazy dog and runs. ".repeat(4);
  const ask = async () => {
    const answer = await cluster.start("tiny", prompt, { request: { maxTokens: 12 } });
    return collect(answer.events);
  };
  const first = await ask();
  const second = await ask();
  expect(deltaText(first).length).toBeGreaterThan(0);
  expect(deltaText(second)).toBe(deltaText(first));
  expect(second.at(-1)).toMatchObject({ type: "done" });
  const started = second.find((event) => event.type === "started");
  expect(started?.type === "started" && started.cachedTokens).toBeGreaterThan(0);
});

test("engine: its refusals keep their code", async () => {
  const long = cluster.start("tiny", "x".repeat(4_000));
  await expect(long).rejects.toMatchObject({ code: "context_length_exceeded" });
});

test("engine: log-probabilities and choices arrive complete", async () => {
  const answer = await cluster.start("tiny", "Hello", {
    request: {
      maxTokens: 8,
      choices: 2,
      topLogprobs: 3,
      sampling: {
        temperature: 1,
        topP: 1,
        presencePenalty: 0,
        frequencyPenalty: 0,
        logitBias: [{ token: 2, bias: -100 }],
        seed: 1,
      },
    },
  });
  const events = await collect(answer.events);
  for (const choice of [0, 1]) {
    const ofChoice = events.filter((event) => "choice" in event && event.choice === choice);
    const deltas = ofChoice.filter((event) => event.type === "delta");
    const finish = ofChoice.find((event) => event.type === "finish");
    const sampled = deltas.reduce((sum, { tokens }) => sum + tokens, 0);
    const entries = deltas.flatMap(({ logprobs }) => logprobs ?? []);
    // The end token is sampled but is not part of the text.
    const ending = finish?.type === "finish" && finish.reason === "stop" ? 1 : 0;
    expect(entries).toHaveLength(sampled - ending);
    for (const entry of entries) expect(entry.top).toHaveLength(3);
  }
});

test("fairness: calls of many choices leave short calls their turn", async () => {
  const options = { threads: 1, contextTokens: 4096, maxSequences: 4 };
  cluster.control.deploy("busy", "every-worker", options, "tiny", ["builtin://tiny"]);
  await cluster.workersReady("busy", 1);
  const controller = new AbortController();
  const sampling = { ...textRequest("").sampling, logitBias: [{ token: 2, bias: -100 }] };
  const long = [];
  for (const choices of [32, 2, 2]) {
    const request = { choices, maxTokens: 3_900, sampling };
    const answer = cluster.start("busy", "Hello", { request, signal: controller.signal });
    long.push(collect((await answer).events));
  }
  for (let call = 0; call < 5; call += 1) {
    const request = { maxTokens: 5, sampling };
    const answer = await cluster.start("busy", `Short ${call}`, { request });
    const last = (await collect(answer.events)).at(-1);
    expect(last).toMatchObject({ type: "done", usage: { completionTokens: 5 } });
  }
  controller.abort();
  for (const events of await Promise.all(long)) {
    expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "cancelled" } });
  }
  cluster.control.remove("busy");
});

test("worker kill -9: leaves no engine process behind", async () => {
  const worker = await cluster.startRealWorker("doomed");
  await cluster.workersReady("tiny", 2);
  const children = childrenOf(worker.pid);
  expect(children.length).toBeGreaterThan(0);
  worker.kill("SIGKILL");
  await once(worker, "exit");
  await eventually(() => !children.some(isAlive), "its children have ended");
});

test("worker SIGTERM: ends its engines and exits 0", async () => {
  const worker = await cluster.startRealWorker("leaving");
  await cluster.workersReady("tiny", 2);
  const children = childrenOf(worker.pid);
  const exited = once(worker, "exit");
  worker.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
  expect(children.some(isAlive)).toBe(false);
});

function childrenOf(pid: number | undefined): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** A zombie process counts as ended. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
