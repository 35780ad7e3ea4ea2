// holds: api-chat

import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { eventsOf, postChat } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;

beforeAll(async () => {
  server = await startTestMaster();
  openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey, maxRetries: 0 });
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const hello = {
  model: "FamilyA-1-2B",
  messages: [{ role: "user" as const, content: "one two three" }],
};

describe("chat: an answer at once", () => {
  it("has the contract's shape", async () => {
    const { data, response } = await openai.chat.completions.create(hello).withResponse();
    expect(data.object).toBe("chat.completion");
    expect(data.id).toMatch(/^chatcmpl-/);
    expect(data.choices).toEqual([
      {
        index: 0,
        message: { role: "assistant", content: "one two three word3 word4", refusal: null },
        logprobs: null,
        finish_reason: "stop",
      },
    ]);
    expect(data.usage).toMatchObject({
      prompt_tokens: 3,
      completion_tokens: 5,
      total_tokens: 8,
      prompt_tokens_details: { cached_tokens: 1, cache_write_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    expect(data.system_fingerprint).toBe("tiny (stand-in)");
    expect(response.headers.get("x-request-id")).toMatch(/^req_/);
    expect(response.headers.get("x-ratelimit-limit-tokens")).toBe("10000000000");
    expect(response.headers.get("x-ratelimit-reset-requests")).toMatch(/^\d+(\.\d+)?(ms|s)$/);
  });

  it("has n choices with distinct indices", async () => {
    const { choices, usage } = await openai.chat.completions.create({
      ...hello,
      n: 3,
      max_tokens: 2,
    });
    expect(choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(choices.map((choice) => choice.message.content)).toEqual(Array(3).fill("one two"));
    expect(choices.every((choice) => choice.finish_reason === "length")).toBe(true);
    expect(usage?.completion_tokens).toBe(6);
  });

  it("has an error with node and model if the engine fails midway", async () => {
    server.dispatch.script.failAfter = {
      tokens: 2,
      error: new AppError("engine_failed", "the engine crashed"),
    };
    const reply = await postChat(server, hello);
    expect(reply.status).toBe(502);
    expect(reply.headers.get("x-should-retry")).toBe("true");
    const { error } = (await reply.json()) as { error: Record<string, unknown> };
    expect(error).toEqual({
      message: "the engine crashed",
      type: "server_error",
      param: null,
      code: "engine_failed",
      request_id: reply.headers.get("x-request-id"),
      retryable: true,
      node: "node-test",
      model: "FamilyA-1-2B",
    });
    expect(server.rows.at(-1)).toMatchObject({ completionTokens: 2, errorCode: "engine_failed" });
  });

  it("is never the truncated text of a lost worker", async () => {
    server.dispatch.script.vanishAfter = 2;
    const reply = await postChat(server, hello);
    expect(reply.status).toBe(502);
    expect(await reply.json()).toMatchObject({ error: { code: "worker_lost" } });
  });

  it("passes on the engine's refusal with its retry time", async () => {
    server.dispatch.script.refuseWith = new AppError("overloaded", "the queue is full", {
      retryAfterMs: 1500,
      model: "tiny",
    });
    const reply = await postChat(server, hello);
    expect(reply.status).toBe(503);
    expect(reply.headers.get("retry-after")).toBe("2");
    expect(reply.headers.get("retry-after-ms")).toBe("1500");
    expect(await reply.json()).toMatchObject({ error: { model: "FamilyA-1-2B" } });
  });
});

describe("chat: a streamed answer", () => {
  it("has the same text, role first and the finish reason last", async () => {
    const stream = await openai.chat.completions.create({ ...hello, stream: true });
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    expect(chunks[0]?.choices[0]?.delta.role).toBe("assistant");
    expect(chunks.slice(1).some((chunk) => chunk.choices[0]?.delta.role)).toBe(false);
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe(
      "one two three word3 word4",
    );
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("stop");
    expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
  });

  it("ends with one [DONE], after a usage chunk without choices if requested", async () => {
    const body = { ...hello, stream: true, stream_options: { include_usage: true } };
    const reply = await postChat(server, body);
    expect(reply.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(reply.headers.get("x-request-id")).toMatch(/^req_/);
    expect(reply.headers.get("x-ratelimit-remaining-requests")).not.toBeNull();
    const events = eventsOf(await reply.text());
    expect(events.filter(({ data }) => data === "[DONE]")).toHaveLength(1);
    expect(events.at(-1)?.data).toBe("[DONE]");
    const chunks = events.slice(0, -1).map(({ data }) => JSON.parse(data));
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: 8 } });
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
  });

  it("has the same logprobs as the answer at once", async () => {
    const asked = { ...hello, logprobs: true, top_logprobs: 2 };
    const whole = await openai.chat.completions.create(asked);
    const parts: unknown[] = [];
    for await (const chunk of await openai.chat.completions.create({ ...asked, stream: true })) {
      parts.push(...(chunk.choices[0]?.logprobs?.content ?? []));
    }
    expect(parts).toEqual(whole.choices[0]?.logprobs?.content);
    expect(parts[0]).toMatchObject({ token: "one", logprob: -0.5, bytes: [111, 110, 101] });
    expect((parts[0] as { top_logprobs: unknown[] }).top_logprobs).toHaveLength(2);
  });

  it("pads its chunks only if obfuscation is requested", async () => {
    const options = { include_obfuscation: true };
    const padded = await postChat(server, { ...hello, stream: true, stream_options: options });
    const chunks = eventsOf(await padded.text())
      .slice(0, -1)
      .map(({ data }) => JSON.parse(data));
    expect(chunks.every((chunk) => /^\w+$/.test(chunk.obfuscation))).toBe(true);
    const plain = await postChat(server, { ...hello, stream: true });
    expect(await plain.text()).not.toContain("obfuscation");
  });

  it("ends with an error event and without [DONE] if it fails midway", async () => {
    const error = new AppError("worker_lost", "the worker died");
    server.dispatch.script.failAfter = { tokens: 3, error };
    const reply = await postChat(server, { ...hello, stream: true });
    const events = eventsOf(await reply.text());
    expect(events.some(({ data }) => data === "[DONE]")).toBe(false);
    expect(events.at(-1)?.type).toBe("error");
    expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({
      error: { code: "worker_lost", message: "the worker died", node: "node-test" },
    });
    const stream = await openai.chat.completions.create({ ...hello, stream: true });
    await expect(async () => {
      for await (const chunk of stream) expect(chunk.object).toBe("chat.completion.chunk");
    }).rejects.toThrow("the worker died");
  });

  it("is an ordinary error reply if refused before its first byte", async () => {
    server.dispatch.script.refuseWith = new AppError("model_loading", "the model is loading");
    const reply = await postChat(server, { ...hello, stream: true });
    expect(reply.status).toBe(503);
    expect(reply.headers.get("content-type")).toContain("application/json");
  });

  it("splits no character and loses no byte of unusual text", async () => {
    const content = 'héllo \u{1F468}\u{200D}\u{1F469} 漢字 \u2028 "quoted\\" \u0000 end';
    const messages = [{ role: "user" as const, content }];
    const stream = await openai.chat.completions.create({
      ...hello,
      messages,
      stream: true,
      max_tokens: 8,
    });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    expect(text.startsWith("héllo \u{1F468}\u{200D}\u{1F469} 漢字")).toBe(true);
  });
});

describe("chat: a client that disconnects", () => {
  it.each([true, false])("ends its call within a second, stream %s", async (stream) => {
    server.dispatch.script.tokenDelayMs = 20;
    const before = server.dispatch.cancelled;
    const generated = server.dispatch.generatedTokens;
    const abort = new AbortController();
    const body = { ...hello, stream, max_tokens: 5000 };
    const reply = postChat(server, body, { signal: abort.signal });
    if (stream) await (await reply).body?.getReader().read();
    await eventually(() => server.dispatch.generatedTokens >= generated + 2);
    abort.abort();
    await reply.catch(() => undefined);
    await eventually(() => server.dispatch.running === 0);
    expect(server.dispatch.cancelled).toBe(before + 1);
    await eventually(() => server.rows.at(-1)?.errorCode === "cancelled");
    expect(server.rows.at(-1)?.completionTokens).toBeGreaterThan(0);
  });
});

describe("chat: a client that does not read", () => {
  // holds: api-back-pressure
  it("blocks its own call instead of filling the master's memory", async () => {
    const before = server.dispatch.generatedTokens;
    const abort = new AbortController();
    const body = { ...hello, stream: true, max_tokens: 10_000, logprobs: true, top_logprobs: 20 };
    const reply = await postChat(server, body, { signal: abort.signal });
    expect(reply.status).toBe(200);
    let last = -1;
    let unchanged = 0;
    await eventually(() => {
      unchanged = last === server.dispatch.generatedTokens && last > before ? unchanged + 1 : 0;
      last = server.dispatch.generatedTokens;
      return unchanged === 20;
    });
    expect(server.dispatch.running).toBe(1);
    expect(server.dispatch.generatedTokens - before).toBeLessThan(10_000);
    abort.abort();
    await eventually(() => server.dispatch.running === 0);
  });

  // holds: api-back-pressure
  it("is cut with request_timeout after the stall limit, and is accounted", async () => {
    const strict = await startTestMaster({ fixedTimes: { streamStallMs: 100 } });
    const body = { ...hello, stream: true, max_tokens: 100_000, logprobs: true, top_logprobs: 20 };
    const reply = await postChat(strict, body);
    await eventually(() => strict.rows.at(-1)?.errorCode === "request_timeout");
    expect(strict.dispatch.running).toBe(0);
    await expect(reply.text()).rejects.toThrow();
    await strict.master.close();
  });
});

// holds: api-heartbeats
describe("chat: a stream that waits long for its first event", () => {
  /** A stream that has sent a heartbeat and still waits; `start` lets its call begin. */
  async function waiting() {
    const patient = await startTestMaster({ fixedTimes: { streamHeartbeatMs: 20 } });
    const begin = Promise.withResolvers<void>();
    patient.dispatch.script = { startAfter: begin.promise };
    const reply = await postChat(patient, { ...hello, stream: true });
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    const first = decoder.decode((await reader.read()).value);
    const rest = async () => {
      begin.resolve();
      let text = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        text += decoder.decode(part.value, { stream: true });
      }
      await patient.master.close();
      return text;
    };
    return { patient, reply, first, rest };
  }

  it("opens with heartbeat comments, and then has its whole answer", async () => {
    const { reply, first, rest } = await waiting();
    expect(first).toMatch(/^(: heartbeat\n\n)+$/);
    expect(reply.headers.get("content-type")).toContain("text/event-stream");
    expect(reply.headers.get("x-request-id")).toMatch(/^req_/);
    const events = eventsOf(await rest());
    expect(events.at(-1)?.data).toBe("[DONE]");
    const texts = events
      .slice(0, -1)
      .map(({ data }) => JSON.parse(data) as OpenAI.ChatCompletionChunk);
    expect(texts[0]?.choices[0]?.delta.role).toBe("assistant");
    expect(texts.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe(
      "one two three word3 word4",
    );
  });

  it("gets a refusal as an event, because its status is sent", async () => {
    const { patient, reply, rest } = await waiting();
    const message = "no replica had room";
    patient.dispatch.script.refuseWith = new AppError("overloaded", message, { model: "tiny" });
    const events = eventsOf(await rest());
    expect(reply.status).toBe(200);
    expect(events).toHaveLength(1);
    expect(events[0]?.type).toBe("error");
    expect(JSON.parse(events[0]?.data ?? "")).toMatchObject({
      error: { code: "overloaded", retryable: true, model: "FamilyA-1-2B" },
    });
  });
});

// holds: api-reasoning
describe("chat: reasoning", () => {
  const question = "<think> step step </think> the answer";
  const asked = {
    ...hello,
    messages: [{ role: "user" as const, content: question }],
    max_tokens: 6,
  };

  it("is a field of its own in an answer, and counted", async () => {
    const { choices, usage } = await openai.chat.completions.create(asked);
    expect(choices[0]?.message).toMatchObject({
      content: "the answer",
      reasoning_content: "step step ",
    });
    expect(usage?.completion_tokens_details?.reasoning_tokens).toBe(4);
    expect(usage?.completion_tokens).toBe(6);
  });

  it("has its own deltas in a stream, for each choice", async () => {
    const stream = await openai.chat.completions.create({
      ...asked,
      n: 2,
      stream: true,
      stream_options: { include_usage: true },
    });
    const content = ["", ""];
    const thought = ["", ""];
    let reasoningTokens: number | undefined;
    for await (const { choices, usage } of stream) {
      reasoningTokens ??= usage?.completion_tokens_details?.reasoning_tokens;
      for (const { index, delta } of choices) {
        content[index] += delta.content ?? "";
        thought[index] += (delta as { reasoning_content?: string }).reasoning_content ?? "";
      }
    }
    expect(content).toEqual(["the answer", "the answer"]);
    expect(thought).toEqual(["step step ", "step step "]);
    expect(reasoningTokens).toBe(8);
  });

  it("starts at once if the model's template has opened it", async () => {
    const node = replicaOn("node-test", "tiny", "ready", 2048);
    const [replica] = node.replicas;
    const info = replica?.info && { ...replica.info, reasoning: "open" as const };
    server.directory.views = [{ ...node, replicas: replica ? [{ ...replica, info }] : [] }];
    const content = "hm hm </think> yes";
    const messages = [{ role: "user" as const, content }];
    const whole = await openai.chat.completions.create({ ...hello, messages, max_tokens: 4 });
    const cut = await openai.chat.completions.create({ ...hello, messages, max_tokens: 2 });
    server.directory.views = [];
    expect(whole.choices[0]?.message).toMatchObject({
      content: "yes",
      reasoning_content: "hm hm ",
    });
    expect(cut.choices[0]?.message).toMatchObject({ content: "", reasoning_content: "hm hm" });
  });
});

describe("chat: a call that takes too long", () => {
  it("is 504 at once, and an error event in a stream", async () => {
    const hasty = await startTestMaster({ deadlineMs: 3_000 });
    hasty.dispatch.script.tokenDelayMs = 20;
    const body = { ...hello, max_tokens: 5000 };
    const reply = await postChat(hasty, body);
    expect(reply.status).toBe(504);
    expect(await reply.json()).toMatchObject({ error: { code: "deadline_exceeded" } });
    const events = eventsOf(await (await postChat(hasty, { ...body, stream: true })).text());
    expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({
      error: { code: "deadline_exceeded" },
    });
    await hasty.master.close();
  });
});

describe("chat: a master that closes", () => {
  it("lets a call end, notifies a longer stream, and refuses new calls", async () => {
    const closing = await startTestMaster({ drainMs: 8_000 });
    closing.dispatch.script.tokenDelayMs = 20;
    const short = held(postChat(closing, { ...hello, max_tokens: 3 }));
    const long = held(postChat(closing, { ...hello, max_tokens: 5000, stream: true }));
    await eventually(() => closing.dispatch.running === 2);
    const closed = closing.master.close();
    expect((await postChat(closing, hello)).status).toBe(503);
    expect((await fetch(`${closing.url}/readyz`)).status).toBe(503);
    expect((await short).status).toBe(200);
    const events = eventsOf(await (await long).text());
    expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({ error: { code: "unavailable" } });
    await closed;
  });

  it("reports the shutdown even if the worker of the stream stops too", async () => {
    const closing = await startTestMaster({ drainMs: 10_000 });
    closing.dispatch.script = {
      tokenDelayMs: 20,
      failAfter: { tokens: 20, error: new AppError("worker_lost", "14 UNAVAILABLE") },
    };
    const stream = held(postChat(closing, { ...hello, max_tokens: 5000, stream: true }));
    await eventually(() => closing.dispatch.running === 1);
    const closed = closing.master.close();
    const events = eventsOf(await (await stream).text());
    expect(JSON.parse(events.at(-1)?.data ?? "")).toMatchObject({
      error: { code: "unavailable", message: expect.stringContaining("shutting down") },
    });
    await closed;
  });
});
