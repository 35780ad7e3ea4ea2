// holds: api-long-runs

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, expect, it } from "vitest";
import type { GgufValue } from "../../gguf/gguf-format.ts";
import { type ByteVocabulary, byteVocabulary } from "../../gguf/llama-model.ts";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { openBindings } from "../native/bindings.ts";
import type { Pointer } from "../native/layouts.ts";
import { findNativeLibrary } from "../native/native-library.ts";
import { TestSession } from "../testing/test-session.ts";
import { Tokenizer } from "./tokenizer.ts";
import { readVocabulary } from "./vocabulary.ts";

/** More than any prompt here has. */
const MOST = 10_000_000;
const scratch = mkdtemp(join(tmpdir(), "heddle-runs-"));
const library = findNativeLibrary("cpu");
const { llama, ggml, silentLog } = openBindings(library);
llama.log_set(silentLog, null);
ggml.load_all_from_path(library.directory);
const loaded: Pointer[] = [];
afterAll(async () => {
  for (const model of loaded) llama.model_free(model);
  await rm(await scratch, { recursive: true });
});

/** Pairs of bytes, one of which continues after a word and its space. */
function joinedModel(pre: string) {
  const vocabulary = byteVocabulary([
    ...([
      ["t", "h"],
      ["e", " "],
      ["n", ","],
      ["s", ","],
    ] as const),
    ...([
      ["1", "2"],
      ["12", "3"],
      ["4", "5"],
      ["0", "0"],
    ] as const),
  ]);
  return { vocabulary, metadata: new Map([["tokenizer.ggml.pre", text(pre)]]) };
}

/** Pieces with scores and a token for each byte, as SentencePiece's. */
function pieceModel(addsSpace: boolean) {
  const pieces = ["\u2581", ..."abcdehinorst,.1", "th", "the", "\u2581the", "\u2581t", "in", "ain"];
  const bytes = Array.from({ length: 256 }, (_, byte) => {
    return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
  });
  const tokens = ["<unk>", "<s>", "</s>", ...bytes, ...pieces];
  while (tokens.length % 32 !== 0) tokens.push(`<unused${tokens.length}>`);
  const typeOf = (_: string, token: number) =>
    token === 0 ? 2 : token < 3 ? 3 : token < 259 ? 6 : token < 259 + pieces.length ? 1 : 5;
  const vocabulary: ByteVocabulary = {
    tokens,
    types: tokens.map(typeOf),
    merges: [],
    begin: 1,
    end: 2,
    padding: 2,
  };
  const scores = tokens.map((piece) => piece.length);
  return {
    vocabulary,
    metadata: new Map<string, GgufValue>([
      ["tokenizer.ggml.model", text("llama")],
      ["tokenizer.ggml.pre", text("default")],
      ["tokenizer.ggml.scores", { type: "array", items: "float32", value: scores }],
      ["tokenizer.ggml.add_space_prefix", { type: "bool", value: addsSpace }],
    ]),
  };
}

function text(value: string): GgufValue {
  return { type: "string", value };
}

async function fileOf(name: string, model: ReturnType<typeof pieceModel>): Promise<string> {
  const path = join(await scratch, `${name}.gguf`);
  await writeTinyModel(path, { ...model, contextTokens: 64 });
  return path;
}

async function tokenizerOf(name: string, model: ReturnType<typeof pieceModel>) {
  const path = await fileOf(name, model);
  const pointer = llama.model_load_from_file(path, llama.model_default_params());
  loaded.push(pointer);
  return new Tokenizer(llama, readVocabulary(llama, pointer));
}

const whole = (tokenizer: Tokenizer, prompt: string) => tokenizer.tokenize(prompt).tokens;
const inPieces = (tokenizer: Tokenizer, prompt: string) =>
  tokenizer.tokenizeParts([prompt], MOST).tokens;

it("SuperBPE: runs of digits in pieces have the same tokens", async () => {
  const tokenizer = await tokenizerOf("super", joinedModel("superbpe"));
  const run = fc.nat(400).map((length) => "1234500".repeat(60).slice(0, length));
  const rest = fc.constantFrom("", " the rain", "a", "_", ", ", ".", "é", "½", "\n", "the the ");
  fc.assert(
    fc.property(fc.array(fc.tuple(rest, run), { maxLength: 6 }), rest, (parts, last) => {
      const prompt = parts.flat().join("") + last;
      expect(inPieces(tokenizer, prompt)).toEqual(whole(tokenizer, prompt));
      expect(tokenizer.takesApart(prompt)).toBe(/\d{61}/.test(prompt));
    }),
    { numRuns: 60 },
  );
});

it("vocabularies that join words: texts cut at symbols have the same tokens", async () => {
  const tokenizer = await tokenizerOf("joined", joinedModel("exaone-moe"));
  const sentence = fc.constantFrom("the rain in Spain, ", "on\n", "12 the.", "the ".repeat(500));
  fc.assert(
    fc.property(fc.array(sentence, { maxLength: 40 }), (parts) => {
      const prompt = parts.join("it is so, ");
      expect(inPieces(tokenizer, prompt)).toEqual(whole(tokenizer, prompt));
    }),
    { numRuns: 50 },
  );
  // In one piece its pattern calls itself for each of them, and ends the process.
  expect(inPieces(tokenizer, "the rain ".repeat(100_000)).length).toBeGreaterThan(500_000);
});

it.each([true, false])(
  "pieces with scores: cut texts have the same tokens (space added: %s)",
  async (added) => {
    const tokenizer = await tokenizerOf(`pieces-${added}`, pieceModel(added));
    const piece = fc.constantFrom(
      ...["the rain ", "in ", "  ", "\u2581", "\n", "ain,", "雨", "😀", "\ud800", "the雨", "1 "],
      ...["the rain in ".repeat(200), "雨が".repeat(800), "ththe".repeat(700), "x".repeat(1_500)],
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (parts) => {
        const prompt = parts.join("");
        expect(inPieces(tokenizer, prompt)).toEqual(whole(tokenizer, prompt));
      }),
      { numRuns: 200 },
    );
  },
);

it("long runs: 60,000 digits and 200,000 unknown characters do not delay others", async () => {
  const digits = await tokenizerOf("digits", joinedModel("superbpe"));
  // In one piece the first takes minutes and more stack than a thread has, the second a minute.
  expect(inPieces(digits, "7".repeat(60_000)).length).toBe(60_000);
  expect(inPieces(digits, "٣𝟘".repeat(30_000)).length).toBeGreaterThan(60_000);
  const pieces = await tokenizerOf("unknown", pieceModel(true));
  expect(inPieces(pieces, "雨".repeat(200_000)).length).toBe(600_001);
});

it("long runs: an engine refuses what is too long, and is not restarted", async () => {
  const session = await TestSession.open({}, await fileOf("engine", joinedModel("superbpe")));
  try {
    const answer = await session.ask({ prompt: "7".repeat(60_000), maxTokens: 1 });
    expect(answer.error?.code).toBe("context_length_exceeded");
    expect((await session.ask({ prompt: "the rain", maxTokens: 1 })).error).toBeUndefined();
    expect(session.crashes).toEqual([]);
  } finally {
    await session.close();
  }
});
