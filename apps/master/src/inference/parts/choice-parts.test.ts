// holds: data-shards

import { eventually } from "@heddle/base/testing/eventually";
import type { GenerateRequest } from "@heddle/contracts/engine";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { postChat } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { choiceParts } from "./choice-parts.ts";

const MODEL = "FamilyA-1-2B";
const PROMPTS = ["a", "b", "c", "d", "e", "f"];

let server: TestMaster;
let openai: OpenAI;
beforeAll(async () => {
  server = await startTestMaster();
  openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey, maxRetries: 0 });
  server.directory.views = ["n1", "n2", "n3"].map((id) => replicaOn(id, "tiny", "ready", 2048));
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

/** The requests to engines after the first `count`. */
const requestsSince = (count: number) =>
  server.dispatch.calls.slice(count).map(({ request }) => request as GenerateRequest);
const chat = (n: number, more: object = {}) =>
  openai.chat.completions.create({
    model: MODEL,
    messages: [{ role: "user", content: "one two three" }],
    n,
    max_tokens: 3,
    ...more,
  });

describe("data shards: how choices are divided", () => {
  const request = (choices: number, seed?: number) =>
    ({ choices, sampling: { seed } }) as GenerateRequest;
  const counts = (requests: readonly GenerateRequest[], replicas: number) =>
    choiceParts(requests, replicas).map((part) => [part.first, part.request.choices]);

  it("gives each replica at least four of a prompt, all of a prompt in order", () => {
    expect(counts([request(7)], 4)).toEqual([[0, 7]]);
    expect(counts([request(8)], 4)).toEqual([
      [0, 4],
      [4, 4],
    ]);
    expect(counts([request(18)], 4).map(([, count]) => count)).toEqual([4, 5, 4, 5]);
    expect(counts([request(8), request(8)], 3)).toEqual([
      [0, 8],
      [8, 8],
    ]);
    expect(counts([request(8), request(8)], 4).map(([first]) => first)).toEqual([0, 4, 8, 12]);
  });

  it("draws each choice with the seed that it has undivided", () => {
    const [first, second] = choiceParts([request(8, 2 ** 32 - 2)], 2);
    expect(first?.request.sampling.seed).toBe(2 ** 32 - 2);
    expect(second?.request.sampling.seed).toBe(2);
    expect(choiceParts([request(8)], 2)[1]?.request.sampling.seed).toBeUndefined();
  });
});

describe("data shards: chats of many choices", () => {
  it("are joined in order, and their prompt counts once", async () => {
    const before = server.dispatch.calls.length;
    const { choices, usage } = await chat(12);
    expect(requestsSince(before).map((each) => each.choices)).toEqual([4, 4, 4]);
    expect(choices.map(({ index }) => index)).toEqual(Array.from({ length: 12 }, (_, i) => i));
    expect(choices.every(({ message }) => message.content === "one two three")).toBe(true);
    expect(usage).toMatchObject({
      prompt_tokens: 3,
      completion_tokens: 36,
      prompt_tokens_details: { cached_tokens: 1 },
    });
    expect(server.rows.at(-1)).toMatchObject({ promptTokens: 3, completionTokens: 36 });
  });

  it("fail where a part of them fails, and end the others", async () => {
    for (const body of [{}, { stream: true }]) {
      server.dispatch.script = { vanishes: [undefined, 5], tokenDelayMs: 5 };
      const reply = await postChat(server, {
        model: MODEL,
        messages: [{ role: "user", content: "one two three" }],
        n: 12,
        max_tokens: 200,
        ...body,
      });
      const text = await reply.text();
      expect(text).toContain("worker_lost");
      expect(text).not.toContain("[DONE]");
      await eventually(() => server.dispatch.running === 0);
    }
  });
});

describe("data shards: completions of many prompts", () => {
  const complete = (more: object = {}) =>
    openai.completions.create({
      model: MODEL,
      prompt: PROMPTS,
      max_tokens: 3,
      echo: true,
      ...more,
    });

  it("are joined in order, with what is sent back", async () => {
    const before = server.dispatch.calls.length;
    const { choices, usage } = await complete();
    expect(server.dispatch.calls.length - before).toBe(PROMPTS.length);
    expect(choices.map(({ text }) => text)).toEqual(
      PROMPTS.map((each) => `${each}word0 word1 word2`),
    );
    expect(usage?.completion_tokens).toBe(18);
    expect(server.rows.at(-1)?.completionTokens).toBe(18);
  });

  it("divide the choices of few prompts, each with its scores", async () => {
    const before = server.dispatch.calls.length;
    const { choices } = await complete({ prompt: "a", n: 8, logprobs: 1, echo: false });
    expect(requestsSince(before).map((each) => each.choices)).toEqual([4, 4]);
    expect(choices[7]?.logprobs?.text_offset).toEqual([0, 5, 11]);
  });
});
