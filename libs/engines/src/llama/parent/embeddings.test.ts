// holds: api-embeddings

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { TestSession } from "../testing/test-session.ts";
import { writeTinyEncoder } from "../testing/tiny-encoder.ts";

const MEAN = 1;
const FIRST = 2;
const LAST = 3;
const RANK = 4;

/** Longer than a call of the engine, so that it is computed in parts. */
const LONG = "the weaver sets the loom ".repeat(20);
const TEXTS = ["hello", "a loom and its weaver", LONG, "hello"];

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-embeddings-"));
});
afterAll(() => rm(directory, { recursive: true }));

/** The tiny model with that pooling in its file. */
async function decoder(pooling: number): Promise<TestSession> {
  const path = join(directory, `pooling-${pooling}.gguf`);
  const metadata = new Map([["llama.pooling_type", { type: "uint32", value: pooling } as const]]);
  await writeTinyModel(path, { metadata });
  return TestSession.open({ maxSequences: 4 }, path);
}

async function encoder(pooling: number): Promise<TestSession> {
  const path = join(directory, `encoder-${pooling}.gguf`);
  await writeTinyEncoder(path, pooling);
  return TestSession.open({ maxSequences: 4 }, path);
}

/** Runs in the session and closes it. */
async function within<T>(opening: Promise<TestSession>, run: (session: TestSession) => Promise<T>) {
  const session = await opening;
  try {
    return await run(session);
  } finally {
    await session.close();
  }
}

function expectClose(one: readonly number[] | undefined, other: readonly number[] | undefined) {
  expect(one?.length).toBe(other?.length);
  one?.forEach((value, i) => {
    expect(value).toBeCloseTo(other?.[i] ?? Number.NaN, 2);
  });
}

describe("embeddings of a model whose file says nothing of pooling", () => {
  let session: TestSession;
  beforeAll(async () => {
    session = await TestSession.open({ maxSequences: 4 });
  });
  afterAll(() => session.close());

  it("are the mean that the library takes, also of an input in parts", async () => {
    const own = await session.embed(TEXTS);
    const library = await within(decoder(MEAN), (other) => other.embed(TEXTS));
    expect(own).toHaveLength(TEXTS.length);
    own.forEach((vector, i) => {
      expectClose(vector, library[i]);
    });
    expect(own[0]).not.toEqual(own[1]);
  });

  it("are the same beside text that is generated, whose tokens stay the same", async () => {
    const alone = await session.embed([LONG]);
    const ask = { prompt: "a text that continues", maxTokens: 24, ignoreEnd: true };
    const quiet = await session.ask(ask);
    const answer = session.ask(ask);
    const [busy] = await session.embed([LONG]);
    expectClose(busy, alone[0]);
    expect((await answer).texts).toEqual(quiet.texts);
  });

  it("keep the prefixes that text left in the cache", async () => {
    const prompt = "a conversation that will be continued soon, with the same beginning";
    await session.ask({ prompt, maxTokens: 2 });
    await session.embed(Array.from({ length: 12 }, (_, i) => `input ${i}`));
    expect((await session.ask({ prompt, maxTokens: 2 })).cachedTokens).toBeGreaterThan(16);
  });

  it("of tokens are those of their text", async () => {
    const [text, tokens] = await session.embed(["AB", [4 + 65, 4 + 66]]);
    expect(tokens).toEqual(text);
  });

  it("refuse a token outside of the vocabulary, and an input that is too long", async () => {
    await expect(session.embed(["a", [1e6]])).rejects.toMatchObject({ param: "input[1]" });
    const tokens = new Array<number>(4097).fill(80);
    const refusal = { code: "context_length_exceeded", param: "input[0]" };
    await expect(session.embed([tokens])).rejects.toMatchObject(refusal);
    await expect(session.embed(["x ".repeat(9000)])).rejects.toMatchObject(refusal);
  });
});

describe("embeddings by the model's own pooling", () => {
  it("take the last row of a decoder that says so, and it generates too", async () => {
    const [last, mean] = [await decoder(LAST), await decoder(MEAN)];
    try {
      const [single, several] = await last.embed(["A", "AB"]);
      const [same, other] = await mean.embed(["A", "AB"]);
      expectClose(single, same);
      expect(several).not.toEqual(other);
      const [long] = await last.embed([LONG]);
      const [long2] = await last.embed([LONG]);
      expectClose(long, long2);
      expect((await last.ask({ prompt: "go", maxTokens: 3 })).usage?.completionTokens).toBe(3);
    } finally {
      await Promise.all([last.close(), mean.close()]);
    }
  });

  it("of an encoder: each input alone equals it among others, and pooling matters", async () => {
    const [first, mean] = [await encoder(FIRST), await encoder(MEAN)];
    try {
      const together = await mean.embed(TEXTS);
      for (const [i, text] of TEXTS.entries())
        expectClose((await mean.embed([text]))[0], together[i]);
      expect(await first.embed(TEXTS.slice(0, 2))).not.toEqual(together.slice(0, 2));
    } finally {
      await Promise.all([first.close(), mean.close()]);
    }
  });

  it("an encoder refuses to generate, and inputs longer than its context", async () => {
    await within(encoder(MEAN), async (session) => {
      const { error } = await session.ask({ prompt: "hello" });
      expect(error).toMatchObject({ code: "invalid_value", param: "model" });
      const tooLong = session.embed(["x ".repeat(900)]);
      await expect(tooLong).rejects.toMatchObject({ code: "context_length_exceeded" });
    });
  });
});

// holds: api-rerank
it("rerank: the model gives each pair one score, by query and document", async () => {
  await within(encoder(RANK), async (session) => {
    expect(session.engine.info.ranks).toBe(true);
    const pair = (query: string, document: string) => ({ kind: "pair", query, document }) as const;
    const long = "the rain in Spain ".repeat(30);
    const pairs = [pair("rain", long), pair("rain", "a loom"), pair("loom", "a loom")];
    const scores = (await session.embed(pairs)).map(([score]) => score as number);
    expect(scores).toHaveLength(3);
    expect(new Set(scores.map((score) => score.toFixed(4))).size).toBe(3);
    for (const [i, one] of pairs.entries())
      expectClose((await session.embed([one]))[0], [scores[i]!]);
    await expect(session.embed(["a"])).rejects.toMatchObject({ param: "model" });
    const tooLong = session.embed([pair("x ".repeat(500), "y ".repeat(500))]);
    await expect(tooLong).rejects.toMatchObject({ code: "context_length_exceeded" });
  });
  await within(encoder(MEAN), async (session) => {
    const pair = { kind: "pair", query: "a", document: "b" } as const;
    await expect(session.embed([pair])).rejects.toMatchObject({ param: "model" });
  });
});
