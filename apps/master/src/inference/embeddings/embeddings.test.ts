// holds: api-embeddings

import { AppError } from "@heddle/base/errors";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { normalised, VectorMemory, vectorJson } from "./vectors.ts";

const MODEL = "FamilyA-1-2B";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

interface Ranking extends Pick<Answer, "error"> {
  readonly results: { readonly index: number; readonly relevance_score: number }[];
}

interface Answer {
  readonly data: { readonly index: number; readonly embedding: number[] }[];
  readonly usage: { readonly prompt_tokens: number };
  readonly error: { readonly code: string; readonly param: string | null };
}

async function embed(input: unknown, more: object = {}, key?: string) {
  const body = { model: MODEL, input, ...more };
  const options = key === undefined ? {} : { key };
  const reply = await send(server, "POST", "/api/v1/embeddings", body, options);
  return { status: reply.status, body: (await reply.json()) as Answer };
}

/** Texts of the lengths 1 to 100, so that each has another vector. */
const texts = Array.from({ length: 100 }, (_, i) => "x".repeat(i + 1));
const allTokens = (100 * 101) / 2;

describe("embeddings: a call in shards", () => {
  it("is joined in order, with the usage of all, counted once", async () => {
    const before = server.dispatch.calls.length;
    const { body } = await embed(texts);
    expect(server.dispatch.calls.length - before).toBe(4);
    expect(body.data.map(({ index }) => index)).toEqual([...texts.keys()]);
    body.data.forEach(({ embedding }, i) => {
      expect((embedding[0] ?? 0) / (embedding[1] ?? 1)).toBeCloseTo(i + 1, 3);
    });
    expect(body.usage.prompt_tokens).toBe(allTokens);
    expect(server.rows.at(-1)).toMatchObject({ promptTokens: allTokens, completionTokens: 0 });
  });

  it("fails where a shard of it fails", async () => {
    server.dispatch.script = { loseShards: [false, true] };
    expect((await embed(texts)).body.error.code).toBe("worker_lost");
  });

  it("names the input of the call that an engine refuses", async () => {
    const refusal = new AppError("context_length_exceeded", "too long", { param: "input[3]" });
    server.dispatch.script = { refuseWith: refusal };
    expect((await embed(texts)).body.error.param).toMatch(/^input\[(3|35)\]$/);
    expect((await embed("long")).body.error.param).toBe("input");
  });
});

describe("embeddings: the key", () => {
  it("needs the model on its list, and pays in tokens", async () => {
    const other = await server.addKey({ models: ["FamilyB-1-8B"] });
    expect((await embed("a", {}, other.text)).status).toBe(403);
    const limited = await server.addKey({ limits: { tokensPerMinute: 40 } });
    expect((await embed("x".repeat(30), {}, limited.text)).status).toBe(200);
    expect((await embed("x".repeat(60), {}, limited.text)).status).toBe(429);
  });
});

describe("embeddings: vectors", () => {
  it("have length 1, cut ones too, and zeros stay zeros", () => {
    const values = Float32Array.of(3, 4, 12);
    expect([...normalised(values, 2)].map((value) => value.toFixed(4))).toEqual([
      "0.6000",
      "0.8000",
    ]);
    expect([...normalised(new Float32Array(2))]).toEqual([0, 0]);
  });

  it("have the same bits in JSON and in base64", () => {
    const values = Float32Array.from({ length: 500 }, () => Math.random() * 2 - 1);
    const json = JSON.parse(vectorJson(values, "float")) as number[];
    const bytes = Buffer.from(JSON.parse(vectorJson(values, "base64")) as string, "base64");
    expect(Float32Array.from(json)).toEqual(values);
    expect(json.map((_, i) => bytes.readFloatLE(i * 4))).toEqual([...values]);
  });

  it("held by unfinished calls are bounded in bytes", () => {
    const memory = new VectorMemory(100);
    memory.take(60);
    expect(() => memory.take(60)).toThrow(AppError);
    memory.give(60);
    memory.take(100);
  });
});

// holds: api-rerank
describe("rerank: a model that ranks", () => {
  afterEach(() => {
    server.directory.views = [];
  });

  async function rerank(documents: readonly string[], more: object = {}) {
    const body = { model: MODEL, query: "loom", documents, ...more };
    const reply = await send(server, "POST", "/api/v1/rerank", body);
    return { status: reply.status, body: (await reply.json()) as Ranking };
  }

  it("scores pairs in shards, and its logits are from 0 to 1", async () => {
    const node = replicaOn("node-test", "tiny", "ready", 2048);
    const replicas = node.replicas.map((replica) => {
      return { ...replica, info: replica.info && { ...replica.info, ranks: true } };
    });
    server.directory.views = [{ ...node, replicas }];
    const { status, body } = await rerank(texts, { top_n: 3, return_documents: true });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      method: "rank",
      results: [
        { index: 0, document: { text: "x" } },
        { index: 1, document: { text: "xx" } },
        { index: 2 },
      ],
      usage: { prompt_tokens: allTokens + 4 * 100 },
    });
    expect(body.results[0]?.relevance_score).toBeCloseTo(1 / (1 + Math.exp(-4 / 5)), 5);
    expect(server.rows.at(-1)).toMatchObject({ promptTokens: allTokens + 400 });
    const long = await rerank(texts, { query: "x".repeat(2 ** 20) });
    expect(long).toMatchObject({ status: 400, body: { error: { param: "query" } } });
  });

  it("has cosines of embeddings where the model has those, and names what is refused", async () => {
    const { body } = await rerank(["xxxx", "x"]);
    expect(body).toMatchObject({ method: "cosine", results: [{ index: 0 }, { index: 1 }] });
    expect(body.results[0]?.relevance_score).toBeCloseTo(1, 5);
    const refusal = new AppError("context_length_exceeded", "too long", { param: "input[0]" });
    server.dispatch.script = { refuseWith: refusal };
    expect((await rerank(["a"])).body.error.param).toBe("query");
  });
});
