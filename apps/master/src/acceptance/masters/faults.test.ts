// holds: ops-node-wire

import { held } from "@heddle/base/testing/held";
import type OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { eventsOf } from "../../../test/http.ts";
import { childrenOf, NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// Two workers, and a client's view when processes are killed.

/** Enough for the rest of a short answer on a loaded machine, far too short for a long one. */
const DRAIN_MS = 4_000;

let cluster: ProcessCluster;

beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 2, masterFlags: ["--drain-ms", `${DRAIN_MS}`] });
});
afterAll(() => cluster.close());

const long = {
  model: TINY,
  messages: [{ role: "user" as const, content: "continue" }],
  n: 4,
  max_tokens: 4000,
  logit_bias: NO_END,
};
/** Long enough to be in its middle when a process is killed. */
const middle = { ...long, max_tokens: 400 };
const short: OpenAI.ChatCompletionCreateParamsNonStreaming = {
  model: TINY,
  messages: long.messages,
  max_tokens: 3,
  logit_bias: only("k"),
};

const post = (body: unknown) => cluster.request("POST", "/api/v1/chat/completions", body);
const answer = async () =>
  (await cluster.openai.chat.completions.create(short)).choices[0]?.message.content;

/** A started stream after this many events: its worker, and a function that reads the rest. */
async function begin(body: object = long, events = 6) {
  const reply = await post({ ...body, stream: true });
  expect(reply.status).toBe(200);
  const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let text = "";
  const read = async () => {
    const { done, value } = await reader.read();
    text += decoder.decode(value, { stream: !done });
    return !done;
  };
  while (eventsOf(text).length < events) {
    if (!(await read())) throw new Error(`the stream ended early: ${text}`);
  }
  return {
    node: reply.headers.get("x-heddle-node"),
    rest: async () => {
      while (await read());
      return text;
    },
  };
}

/** The worker process of the node. */
async function workerOf(node: string | null) {
  const reply = await cluster.request("GET", "/api/v1/workers");
  const { data } = (await reply.json()) as { data: { id: string; address: string }[] };
  const address = data.find(({ id }) => id === node)?.address;
  const line = cluster.output.split("\n").find((text) => text.includes(`${address}`));
  const pid = line === undefined ? undefined : (JSON.parse(line) as { pid?: number }).pid;
  return cluster.workers.find((worker) => worker.pid === pid);
}

/** An end of every choice, and no error. */
function expectWhole(text: string): void {
  expect(text).not.toContain("event: error");
  expect(text.match(/"finish_reason":"length"/g)).toHaveLength(middle.n);
  expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
}

function expectCutOff(text: string, code: string): void {
  const last = eventsOf(text).at(-1);
  expect(last?.type).toBe("error");
  expect(JSON.parse(last?.data ?? "")).toMatchObject({ error: { code, type: "server_error" } });
  expect(text).not.toContain("[DONE]");
  expect(text).not.toMatch(/"finish_reason":"/);
}

describe("kill -9", () => {
  beforeEach(() => cluster.startMissing(2));

  // holds: engine-killed
  it("of an engine lets another continue its stream; it restarts and answers", async () => {
    const stream = await begin(middle);
    const worker = await workerOf(stream.node);
    const [engine] = childrenOf(worker?.pid);
    process.kill(engine ?? 0, "SIGKILL");
    expectWhole(await stream.rest());
    expect(await answer()).toBe("kkk");
    await cluster.replicasReady(2);
    expect(childrenOf(worker?.pid)[0]).not.toBe(engine);
    expect(await Promise.all(Array.from({ length: 4 }, answer))).toEqual(Array(4).fill("kkk"));
  });

  // holds: engine-restart-wait
  it("of every engine fails no later call: all wait for the restart", async () => {
    const engines = () => cluster.runningWorkers.flatMap(({ pid }) => childrenOf(pid));
    await cluster.until(async () => engines().length === 2, "both engines run");
    for (const engine of engines()) process.kill(engine, "SIGKILL");
    expect(await Promise.all(Array.from({ length: 4 }, answer))).toEqual(Array(4).fill("kkk"));
    await cluster.replicasReady(2);
  });

  it("of a worker lets the other continue its stream, and answer at once", async () => {
    const stream = await begin(middle);
    const worker = await workerOf(stream.node);
    worker?.kill("SIGKILL");
    // The lost worker stays down until these are answered.
    expect(await Promise.all(Array.from({ length: 8 }, answer))).toEqual(Array(8).fill("kkk"));
    expectWhole(await stream.rest());
  });

  // holds: api-retry
  it("of every worker lets calls wait for the next one, which continues them", async () => {
    const stream = await begin(middle);
    const pending = held(post(middle));
    await cluster.until(
      async () => (await cluster.metric("vllm:num_requests_running")) > 1,
      "the calls run",
    );
    for (const worker of cluster.workers) worker.kill("SIGKILL");
    // Without a worker a call waits for one, as when a supervisor restarts it.
    const waiting = held(answer());
    await cluster.startWorker();
    expect(await waiting).toBe("kkk");
    expectWhole(await stream.rest());
    const reply = await pending;
    expect(reply.status).toBe(200);
    const { usage } = (await reply.json()) as OpenAI.ChatCompletion;
    expect(usage?.completion_tokens).toBe(4 * middle.max_tokens);
  });
});

describe("master restart", () => {
  beforeEach(() => cluster.startMissing(2));

  it("on SIGTERM lets a short stream end, interrupts a long one, exits 0", async () => {
    const stream = await begin();
    const brief = await begin({ ...short, max_tokens: 20 }, 1);
    const ended = held(cluster.stop(cluster.master));
    expect((await brief.rest()).trimEnd().endsWith("data: [DONE]")).toBe(true);
    expectCutOff(await stream.rest(), "unavailable");
    expect(await ended).toBe(0);
  });

  // holds: key-restart
  it("is found by its worker again, and has its keys", async () => {
    expect(await answer()).toBe("kkk");
    const key = await cluster.createKey({});
    await cluster.stop(cluster.master, "SIGKILL");
    await cluster.startMissing(2);
    const models = await cluster.client(key).models.list();
    expect(models.data).toHaveLength(5);
    const { choices } = await cluster.client(key).chat.completions.create(short);
    expect(choices[0]?.message.content).toBe("kkk");
  });
});
