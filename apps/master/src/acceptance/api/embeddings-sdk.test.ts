// holds: api-embeddings

import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Heddle } from "@heddle/client/heddle";
import type OpenAI from "openai";
import { afterAll, beforeAll, expect, it } from "vitest";
import { byteToken, ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// The unmodified official Node client against a master and two workers as processes.

let cluster: ProcessCluster;
let openai: OpenAI;

beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 2 });
  openai = cluster.openai;
});
afterAll(() => cluster.close());

type Params = OpenAI.EmbeddingCreateParams;
const create = (params: Omit<Params, "model">) =>
  openai.embeddings.create({ model: TINY, ...params });
const vectors = ({ data }: OpenAI.CreateEmbeddingResponse) => data.map((each) => each.embedding);
const norm = (vector: readonly number[]) => Math.hypot(...vector);

it("embeddings: the client's default of base64 has the same bits as floats", async () => {
  const input = ["a loom", "a weaver"];
  const decoded = await create({ input });
  const floats = await create({ input, encoding_format: "float" });
  expect(vectors(floats).map((vector) => vector.map(Math.fround))).toEqual(vectors(floats));
  expect(vectors(decoded)).toEqual(vectors(floats));
  for (const vector of vectors(floats)) expect(norm(vector)).toBeCloseTo(1, 5);
  expect(floats).toMatchObject({ object: "list", model: TINY });
  expect(floats.data.map(({ index }) => index)).toEqual([0, 1]);
});

it("embeddings: the four forms of input, and usage in tokens", async () => {
  const tokens = [...Buffer.from("zq")].map((byte) => Number(byteToken(byte)));
  const [text] = vectors(await create({ input: "zq" }));
  const all = await create({ input: [tokens, [...tokens, ...tokens]] });
  expect(all.usage).toEqual({ prompt_tokens: 6, total_tokens: 6 });
  expect(vectors(all)[0]).toEqual(text);
  expect(vectors(await create({ input: tokens }))).toEqual([text]);
  expect(vectors(await create({ input: ["zq"] }))).toEqual([text]);
});

it("embeddings: dimensions keeps the first numbers, normalised again", async () => {
  const whole = vectors(await create({ input: "a loom" }))[0] ?? [];
  const cut = vectors(await create({ input: "a loom", dimensions: 8 }))[0] ?? [];
  const length = norm(whole.slice(0, 8));
  expect(cut).toHaveLength(8);
  cut.forEach((value, i) => {
    expect(value).toBeCloseTo((whole[i] ?? 0) / length, 5);
  });
});

it("embeddings: 2,048 inputs on two workers stay in order, a chat call continues", async () => {
  const input = Array.from({ length: 2048 }, (_, i) => `n${i % 64}`);
  const messages = [{ role: "user" as const, content: "hello" }];
  let all: number[][] = [];
  // The test may stall before either request or answer.
  await eventually(async () => {
    let isDone = false;
    const batch = held(create({ input }).finally(() => (isDone = true)));
    await openai.chat.completions.create({ model: TINY, messages, max_tokens: 4 });
    const isBeside = !isDone;
    all = vectors(await batch);
    return isBeside;
  }, "a chat call is answered before the inputs");
  expect(all).toHaveLength(2048);
  const close = (a: readonly number[], b: readonly number[]) =>
    a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0) > 0.999;
  for (const [i, vector] of all.entries()) {
    if (!close(vector, all[i % 64] ?? [])) throw new Error(`input ${i} has another's vector`);
  }
  expect(close(all[0] ?? [], all[1] ?? [])).toBe(false);
});

it("embeddings: faults name their field", async () => {
  const refused = async (params: Record<string, unknown>, expected: object) => {
    await expect(create(params as never)).rejects.toMatchObject({ status: 400, ...expected });
  };
  await refused({ input: "" }, { param: "input" });
  await refused({ input: [] }, { param: "input" });
  await refused({ input: ["a", ""] }, { param: "input[1]" });
  const whole = expect.stringMatching("'input\\[0\\]': .*expected a whole number");
  await refused({ input: [1.5] }, { param: "input[0]", message: whole });
  await refused({ input: new Array(2049).fill("a") }, { param: "input" });
  await refused({}, { param: "input", code: "missing_required_parameter" });
  await refused({ input: "a", dimensions: 4096 }, { param: "dimensions" });
  await refused({ input: "a", encoding_format: "int8" }, { param: "encoding_format" });
  const long = new Array(40).fill("a");
  long[37] = "x ".repeat(9000);
  await refused({ input: long }, { param: "input[37]", code: "context_length_exceeded" });
  await refused({ input: long[37] }, { param: "input", code: "context_length_exceeded" });
});

it("embeddings: the client of this repository gets the same", async () => {
  const heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
  const { data } = await heddle.embeddings.create({ model: TINY, input: "a loom" });
  expect(data[0]?.embedding).toEqual(vectors(await create({ input: "a loom" }))[0]);
});
