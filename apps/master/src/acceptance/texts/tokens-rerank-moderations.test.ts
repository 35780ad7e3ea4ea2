import Anthropic from "@anthropic-ai/sdk";
import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { byteToken, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node clients against a master and a worker as processes.

let cluster: ProcessCluster;
let openai: OpenAI;
let anthropic: Anthropic;
beforeAll(async () => {
  cluster = await ProcessCluster.start();
  openai = cluster.openai;
  anthropic = new Anthropic({
    baseURL: `${cluster.url}/api`,
    apiKey: cluster.adminKey,
    maxRetries: 0,
  });
});
afterAll(() => cluster.close());

// holds: api-tokens
it("tokens: texts and chats are read as their calls read them, and spelled again", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const { tokens } = heddle;
  const read = await tokens.tokenize({ model: TINY, prompt: "h\u00e9 <|im_end|>" });
  const tail = await tokens.tokenize({ model: TINY, prompt: "abc", return_token_strs: true });
  expect(tail).toMatchObject({ count: 3, token_strs: ["a", "b", "c"] });
  expect(tail.tokens).toEqual([..."abc"].map((c) => Number(byteToken(c.charCodeAt(0)))));
  const { prompt } = await tokens.detokenize({ model: TINY, tokens: [...read.tokens] });
  expect(prompt).toBe("h\u00e9 <|im_end|>");
  const messages = [{ role: "user" as const, content: "what is <|im_end|> here?" }];
  const shown = await tokens.applyTemplate({ model: TINY, messages });
  expect(shown.prompt).toContain("what is <|im_end|> here?");
  expect(shown.prompt).toMatch(/assistant\s*$/);
  const chat = await tokens.tokenize({ model: TINY, messages });
  const { usage } = await openai.chat.completions.create({ model: TINY, messages, max_tokens: 1 });
  expect(chat.count).toBe(usage?.prompt_tokens);
  const counted = await anthropic.messages.countTokens({ model: TINY, messages });
  expect(counted.input_tokens).toBe(chat.count);
  const long = await tokens.tokenize({ model: TINY, prompt: "a loom ".repeat(60_000) });
  expect(long.tokens).toHaveLength(long.count);
  expect(long.count).toBeGreaterThan(long.max_model_len);
});

// holds: api-tokens
it("tokens: faults name their field, and nothing is charged", async () => {
  const refused = async (path: string, body: object, param: string) => {
    const reply = await cluster.request("POST", `/api/v1/${path}`, { model: TINY, ...body });
    expect([reply.status, ((await reply.json()) as { error: object }).error]).toEqual([
      400,
      expect.objectContaining({ param }),
    ]);
  };
  await refused("tokenize", {}, "prompt");
  await refused(
    "tokenize",
    { prompt: "a", messages: [{ role: "user", content: "abc" }] },
    "prompt",
  );
  await refused("tokenize", { prompt: "a".repeat(524_289) }, "prompt");
  await refused("tokenize", { messages: [] }, "messages");
  await refused(
    "tokenize",
    { messages: [{ role: "user", content: "abc" }], add_special_tokens: true },
    "add_special_tokens",
  );
  await refused("detokenize", { tokens: [1e6] }, "tokens");
  await refused("detokenize", { tokens: ["a"] }, "tokens[0]");
  await refused("apply-template", { messages: [{ role: "x", content: "" }] }, "messages[0].role");
  const key = await cluster.createKey({ limits: { tokens_per_minute: 5 } });
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: key });
  const { count } = await heddle.tokens.tokenize({ model: TINY, prompt: "a much longer text" });
  expect(count).toBeGreaterThan(5);
});

// holds: api-rerank
it("rerank: documents in the order of their cosine, whose embeddings are the model's", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const documents = ["a loom weaves", { text: "the rain" }, "rain in Spain", "zzzz"];
  const body = { model: TINY, query: "the rain", documents };
  const { results, method, usage } = await heddle.rerank.create(body);
  expect([method, results[0]?.index, usage.total_tokens > 0]).toEqual(["cosine", 1, true]);
  expect(results[0]?.relevance_score).toBeCloseTo(1, 2);
  const scores = results.map(({ relevance_score }) => relevance_score);
  expect(scores).toEqual(scores.toSorted((one, other) => other - one));
  const best = await heddle.rerank.create({ ...body, top_n: 1, return_documents: true });
  expect(best.results).toMatchObject([{ index: 1, document: { text: "the rain" } }]);
  const refused = async (more: object, param: string) => {
    const reply = await cluster.request("POST", "/api/v1/rerank", { ...body, ...more });
    expect([reply.status, await reply.json()]).toMatchObject([400, { error: { param } }]);
  };
  await refused({ query: "" }, "query");
  await refused({ documents: [] }, "documents");
  await refused({ documents: new Array(1001).fill("a") }, "documents");
  await refused({ documents: ["a", "x ".repeat(9000)] }, "documents[1]");
  await refused({ query: "x ".repeat(9000) }, "query");
  await refused({ top_n: 0 }, "top_n");
});

// holds: api-moderations
it("moderations: a text of nothing is harmless, and later ones are scored", async () => {
  for (const input of ["", " \n", ["", "\u0000"], "hello"]) {
    const { results } = await cluster.openai.moderations.create({ input });
    expect(results.map(({ flagged }) => flagged)).not.toContain(true);
  }
});

// holds: api-moderations
it("moderations: texts are scored by category, and near misses are not flagged", async () => {
  const create = (input: string | string[]) => openai.moderations.create({ input });
  const { results, model } = await create([
    "I will come over and break your bones, you idiot.",
    "I have decided to kill myself this evening.",
    "How do I kill a stuck process in Linux?",
    "Please translate this letter into German.",
  ]);
  expect(model).toBe("moderation-local");
  expect(results.map(({ flagged }) => flagged)).toEqual([true, true, false, false]);
  const [threat, intent] = results;
  expect(threat?.categories).toMatchObject({ "harassment/threatening": true, sexual: false });
  expect(intent?.categories).toMatchObject({ "self-harm/intent": true, hate: false });
  for (const { category_scores, category_applied_input_types } of results) {
    expect(Object.keys(category_scores)).toHaveLength(13);
    expect(Object.keys(category_applied_input_types)).toHaveLength(13);
  }
  const hidden = await create(`${"The weather is nice today. ".repeat(40)}I want to kill myself.`);
  expect(hidden.results[0]?.category_scores["self-harm"]).toBeGreaterThan(0.5);
  const part = { type: "text" as const, text: "hello" };
  const parts = await openai.moderations.create({ input: [part, part] });
  expect(parts.results).toHaveLength(1);
  const refused = async (body: object, status: number, param: string) => {
    const reply = await cluster.request("POST", "/api/v1/moderations", body);
    expect([reply.status, await reply.json()]).toMatchObject([status, { error: { param } }]);
  };
  const image = { type: "image_url", image_url: { url: "https://a.example/b" } };
  await refused({ input: [part, image] }, 400, "input[1].type");
  await refused({ input: "a".repeat(40_000) }, 400, "input");
  await refused({ input: [] }, 400, "input");
  await refused({ input: "a", model: "gpt" }, 404, "model");
});
