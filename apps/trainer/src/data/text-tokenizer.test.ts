// holds: train-tokenizer

import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seededRandom } from "@heddle/base/random";
import { type LoadedModel, loadModel } from "@heddle/engines/llama/engine-thread/model";
import { stepRingMemory } from "@heddle/engines/llama/protocol/step-ring";
import { Tokenizer } from "@heddle/engines/llama/tokenizing/tokenizer";
import { initialParameters } from "@heddle/training/initialize";
import { languageModelParameters } from "@heddle/training/language-model/language-model";
import { randomText } from "@heddle/training/tokenizer/testing/random-text";
import { afterAll, beforeAll, expect, test } from "vitest";
import { exportLanguageModel } from "../export/export-language-model.ts";
import { type TextTokenizer, textTokenizer } from "./text-tokenizer.ts";
import { tokenizerJson } from "./tokenizer-json.ts";

// Our own encoders and llama.cpp's, which reads the export.

const LEARNED_FROM = randomText(seededRandom(1), 40_000);
let loaded: LoadedModel | undefined;
let folder = "";
let learned: TextTokenizer;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-tokenizer-"));
  learned = textTokenizer({ type: "bpe", vocab_size: 1_000 }, Buffer.from(LEARNED_FROM));
});
afterAll(() => {
  loaded?.llama.free(loaded.context);
  rmSync(folder, { recursive: true });
});

/** The engine's tokenizer, of a model with this vocabulary. */
async function engineTokenizer({ vocabulary }: TextTokenizer): Promise<Tokenizer> {
  const shape = {
    vocab_size: vocabulary.tokens.length,
    context_length: 8,
    hidden_size: 4,
    layers: 1,
    heads: 1,
    kv_heads: 1,
    intermediate_size: 4,
    rope_theta: 10_000,
    norm_epsilon: 1e-5,
  };
  const parameters = initialParameters(languageModelParameters(shape), seededRandom(1));
  const modelPath = join(folder, "model.gguf");
  const lineage = { jobId: "job_1", jobName: "tokens", codeVersion: "0", step: 0 };
  await exportLanguageModel(modelPath, { shape, vocabulary, parameters, lineage });
  const { model, table } = loadModel({
    modelPath,
    device: "cpu",
    gpuLayers: 0,
    threads: 1,
    prefillBudgetTokens: 32,
    contextTokens: 64,
    maxSequences: 1,
    wake: new SharedArrayBuffer(4),
    steps: stepRingMemory(),
  });
  loaded = model;
  return new Tokenizer(model.llama, table);
}

/** Texts of all kinds. */
function varied(): string[] {
  const seed = 20_261_121;
  console.log(`texts are drawn by the seed ${seed}`);
  const random = seededRandom(seed);
  const drawn = Array.from({ length: 2_000 }, (_, i) => randomText(random, 1 + (i % 60)));
  const own = ["", " ", "  ", "a", " a", "\n", "\n\n a", "'s", "it's 'REally'", "a".repeat(5_000)];
  return [...own, ...drawn, LEARNED_FROM];
}

test("export: the engine cuts any text into the tokens that the model was trained on", async () => {
  expect(learned.vocabulary.tokens).toHaveLength(1_024);
  expect(learned.vocabulary.merges).toHaveLength(1_000 - 260);
  const engine = await engineTokenizer(learned);
  let tokens = 0;
  for (const text of varied()) {
    const [mine, theirs] = [learned.encode(Buffer.from(text)), engine.tokenize(text).tokens];
    expect([...mine], JSON.stringify(text.slice(0, 200))).toEqual([...theirs]);
    expect(Buffer.from(learned.decode(mine)).toString()).toBe(text);
    tokens += mine.length;
  }
  expect(tokens).toBeGreaterThan(20_000);
});

test("tokenizer.json: the one a job leaves gives the same tokens", () => {
  const path = join(folder, "tokenizer.json");
  writeFileSync(path, tokenizerJson(learned.vocabulary));
  const read = textTokenizer({ type: "huggingface", path }, new Uint8Array());
  expect(read.digest).toBe(learned.digest);
  const text = Buffer.from(LEARNED_FROM);
  expect(read.encode(text)).toEqual(learned.encode(text));
});

test("tokenizer.json: may number its tokens in any way, with gaps", () => {
  const spelled = learned.vocabulary.tokens.slice(4, 1_000).toReversed();
  const path = join(folder, "reversed.json");
  const vocab = Object.fromEntries(spelled.map((token, at) => [token, 2 * at]));
  const { merges } = learned.vocabulary;
  const added_tokens = [{ id: 1, content: "</s>", special: true }];
  const pre_tokenizer = { type: "ByteLevel", add_prefix_space: false };
  const model = { type: "BPE", vocab, merges };
  writeFileSync(path, JSON.stringify({ added_tokens, pre_tokenizer, model }));
  const read = textTokenizer({ type: "huggingface", path }, new Uint8Array());
  expect(read.vocabulary).toMatchObject({ begin: 1, end: 1, padding: 1 });
  expect(read.vocabulary.tokens.slice(0, 4)).toEqual([spelled[0], "</s>", spelled[1], "<unused3>"]);
  expect(read.digest).not.toBe(learned.digest);
  const text = Buffer.from(LEARNED_FROM);
  const spelling = (tokenizer: TextTokenizer) =>
    Array.from(tokenizer.encode(text), (token) => tokenizer.vocabulary.tokens[token]);
  expect(spelling(read)).toEqual(spelling(learned));
});

const PRE_TOKENIZER = { type: "ByteLevel", add_prefix_space: false };
const VOCAB = { a: 0, b: 1 };

test.each([
  ["no JSON", "{", /JSON/],
  ["another model", { pre_tokenizer: PRE_TOKENIZER, model: { type: "Unigram" } }, /model.type/],
  [
    "another pattern",
    { pre_tokenizer: { type: "Sequence" }, model: { type: "BPE", vocab: VOCAB, merges: [] } },
    /pre_tokenizer.type.*only GPT-2's/,
  ],
  [
    "a normalizer",
    {
      normalizer: { type: "NFC" },
      pre_tokenizer: PRE_TOKENIZER,
      model: { type: "BPE", vocab: VOCAB, merges: [] },
    },
    /normalizer.*as they are/,
  ],
  [
    "bytes that have no token",
    { pre_tokenizer: PRE_TOKENIZER, model: { type: "BPE", vocab: VOCAB, merges: [] } },
    /no token "/,
  ],
  [
    "a number that is given twice",
    { pre_tokenizer: PRE_TOKENIZER, model: { type: "BPE", vocab: { a: 0, b: 0 }, merges: [] } },
    /"b" and "a" have the number 0/,
  ],
])("tokenizer.json: one with %s is refused with the reason", (_, content, why) => {
  const path = join(folder, "bad.json");
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  const read = () => textTokenizer({ type: "huggingface", path }, new Uint8Array());
  expect(read).toThrow(why);
  expect(read).toThrow(/bad\.json cannot be used/);
});

test("tokenizer.json: what is not a file, or too large, is refused unread", () => {
  const path = join(folder, "large.json");
  writeFileSync(path, "");
  truncateSync(path, 65 * 2 ** 20);
  const read = (from: string) => () =>
    textTokenizer({ type: "huggingface", path: from }, new Uint8Array());
  expect(read(path)).toThrow(/large\.json cannot be used: it has more than \d+ bytes/);
  expect(read("/dev/zero")).toThrow(/it is not a file/);
  expect(read(folder)).toThrow(/it is not a file/);
});
