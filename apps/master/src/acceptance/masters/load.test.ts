// holds: ops-node-wire

import { setTimeout as delay } from "node:timers/promises";
import { seededRandom } from "@heddle/base/random";
import { atLeastFourOfFive } from "@heddle/base/testing/tries";
import OpenAI, { type APIError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NO_END, only, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

const messages = [{ role: "user" as const, content: "continue" }];
/** Far more than one slot can generate during a test. */
const endless = { model: TINY, messages, n: 16, max_tokens: 4000, logit_bias: NO_END };

async function short(cluster: ProcessCluster): Promise<string | null | undefined> {
  const answer = await cluster.openai.chat.completions.create({
    model: TINY,
    messages,
    max_tokens: 2,
    logit_bias: only("k"),
  });
  return answer.choices[0]?.message.content;
}

describe("64 streams at once", () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({ workers: 2 });
  });
  afterAll(() => cluster.close());

  // holds: api-64-streams
  it("are each complete, ended once, and never mixed up", async () => {
    const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    const answers = [...letters].map(async (letter, i) => {
      const stream = await cluster.openai.chat.completions.create({
        model: TINY,
        messages: [{ role: "user", content: `call ${i}` }],
        max_tokens: 40 + i,
        logit_bias: only(letter),
        stream: true,
        stream_options: { include_usage: true },
      });
      let text = "";
      let usage = 0;
      const reasons: string[] = [];
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? "";
        const reason = chunk.choices[0]?.finish_reason;
        if (reason) reasons.push(reason);
        usage += chunk.usage?.completion_tokens ?? 0;
      }
      return { text, reasons, usage };
    });
    expect(await Promise.all(answers)).toEqual(
      [...letters].map((letter, i) => ({
        text: letter.repeat(40 + i),
        reasons: ["length"],
        usage: 40 + i,
      })),
    );
  });
});

describe("a storm of disconnects", () => {
  /** As many calls of the key at once as it may have. */
  const CALLS = 40;
  const BODIES: readonly (readonly [path: string, body: object])[] = [
    ["chat/completions", endless],
    ["completions", { model: TINY, prompt: "continue", max_tokens: 4000, logit_bias: NO_END }],
    ["responses", { model: TINY, input: "continue", max_output_tokens: 4000, logit_bias: NO_END }],
    ["messages", { model: TINY, messages, max_tokens: 4000 }],
    ["embeddings", { model: TINY, input: new Array(64).fill("continue ".repeat(40)) }],
  ];
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start();
  });
  afterAll(() => cluster.close());

  // holds: api-disconnect
  it("leaves no call and no reservation behind, and cuts no other answer", async () => {
    const key = await cluster.createKey({ limits: { concurrency: CALLS } });
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const random = seededRandom(14);
    const hangUp = async (call: number) => {
      const [path, body] = BODIES[call % BODIES.length] as (typeof BODIES)[number];
      const abort = new AbortController();
      const reply = fetch(`${cluster.url}/api/v1/${path}`, {
        method: "POST",
        headers,
        body: JSON.stringify({ ...body, stream: call % 2 === 0 }),
        signal: abort.signal,
      }).then((answer) => answer.text());
      // Most have waited or begun by then, some have not been read.
      const cut = delay(random() * 800).then(() => abort.abort());
      await Promise.allSettled([reply, cut]);
    };
    for (let wave = 0; wave < 3; wave++) {
      const storm = Array.from({ length: CALLS }, (_, call) => hangUp(call));
      const [answer] = await Promise.all([short(cluster), ...storm]);
      expect(answer).toBe("kk");
    }
    await cluster.until(async () => {
      const running = await cluster.metric("heddle_replica_requests_running");
      return running + (await cluster.metric("heddle_dispatch_queued_requests")) === 0;
    }, "no call waits or runs");
    const client = cluster.client(key);
    const one = { model: TINY, messages, max_tokens: 1 };
    await cluster.until(async () => {
      const calls = Array.from({ length: CALLS }, () => client.chat.completions.create(one));
      return (await Promise.allSettled(calls)).every(({ status }) => status === "fulfilled");
    }, "the key may have all its calls at once again");
  });
});

describe("one slot", () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({
      masterFlags: ["--max-queued", "2"],
      workerFlags: ["--max-sequences", "1"],
    });
  });
  afterAll(() => cluster.close());

  const post = (body: unknown, signal?: AbortSignal) =>
    cluster.request("POST", "/api/v1/chat/completions", body, signal);
  const running = () => cluster.metric("heddle_replica_requests_running");
  const queued = () => cluster.metric("heddle_dispatch_queued_requests");
  const runs = (count: number) =>
    cluster.until(async () => (await running()) === count, `${count} calls run`);

  // holds: api-disconnect
  it.each([true, false])(
    "is free within a second after its client disconnects, stream %s",
    async (stream) => {
      await atLeastFourOfFive(async () => {
        const abort = new AbortController();
        const call = post({ ...endless, stream }, abort.signal);
        call.catch(() => {});
        if (stream) await (await call).body?.getReader().read();
        await runs(1);
        const next = short(cluster);
        abort.abort();
        const startedMs = performance.now();
        expect(await next).toBe("kk");
        const ms = performance.now() - startedMs;
        await runs(0);
        return ms < 1_000;
      });
    },
  );

  // holds: api-queue-full
  it("refuses calls above its queues with 503 and Retry-After, then serves on", async () => {
    const abort = new AbortController();
    const refusals: APIError[] = [];
    // One runs, one may wait in the engine and two in the master, so at least eight are refused at
    // once. Two more may find room as calls end.
    for (let call = 0; call < 12; call++) {
      cluster.openai.chat.completions
        .create({ ...endless, stream: true }, { signal: abort.signal })
        .catch((error: APIError) => {
          if (!abort.signal.aborted) refusals.push(error);
        });
    }
    await cluster.until(async () => refusals.length >= 6, "six of twelve are refused");
    abort.abort();
    for (const error of refusals) {
      expect(error).toBeInstanceOf(OpenAI.InternalServerError);
      expect(error).toMatchObject({ status: 503, code: "overloaded" });
      expect(Number(error.headers?.get("retry-after"))).toBeGreaterThan(0);
    }
    const isIdle = async () => (await running()) + (await queued()) === 0;
    await cluster.until(isIdle, "no call waits or runs");
    expect(await short(cluster)).toBe("kk");
  });
});

describe("a deadline", () => {
  let cluster: ProcessCluster;
  beforeAll(async () => {
    cluster = await ProcessCluster.start({
      masterFlags: ["--deadline-ms", "2500"],
      workerFlags: ["--max-sequences", "1"],
    });
  });
  afterAll(() => cluster.close());

  // holds: api-deadline
  it("ends a call: 504 at once, an error event in a stream", async () => {
    const post = (body: unknown) => cluster.request("POST", "/api/v1/chat/completions", body);
    const whole = await post(endless);
    expect(whole.status).toBe(504);
    expect(await whole.json()).toMatchObject({ error: { code: "deadline_exceeded" } });
    const stream = await (await post({ ...endless, stream: true })).text();
    expect(stream).toMatch(/event: error\ndata: .*"code":"deadline_exceeded"/);
    expect(stream).not.toContain("[DONE]");
    expect(await short(cluster)).toBe("kk");
  });
});
