// holds: api-long-prompt-others

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { type LoadedModel, loadModel } from "../engine-thread/model.ts";
import { stepRingMemory } from "../protocol/step-ring.ts";
import { CandidateArray, Grammar, JSON_OBJECT_GRAMMAR } from "./grammar.ts";

let directory: string;
let model: LoadedModel;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-grammar-"));
  const modelPath = join(directory, "tiny.gguf");
  await writeTinyModel(modelPath);
  ({ model } = loadModel({
    ...{ modelPath, device: "cpu", gpuLayers: 0, threads: 1, prefillBudgetTokens: 32 },
    ...{ contextTokens: 64, maxSequences: 1 },
    ...{ wake: new SharedArrayBuffer(4), steps: stepRingMemory() },
  }));
});
afterAll(async () => {
  model.llama.free(model.context);
  await rm(directory, { recursive: true });
});

/** The token that is this one character. */
function tokenOf(text: string): number {
  const tokens = Array.from({ length: model.vocabularySize }, (_, token) => token);
  return tokens.findIndex((token) => Buffer.from(model.tokenBytes(token)).toString() === text);
}

/** What is drawn where these are the likeliest, the first most of all. */
function draw(grammar: Grammar, wanted: readonly string[]): string {
  const logits = new Float32Array(model.vocabularySize);
  wanted.forEach((text, at) => {
    logits[tokenOf(text)] = 100 - at;
  });
  const token = grammar.draw(logits, (left) => left.indexOf(Math.max(...left)));
  if (token >= 0) grammar.accept(token);
  return token < 0 ? "" : Buffer.from(model.tokenBytes(token)).toString();
}

it("grammar: JSON has at most the allowed depth for any likeliest token, and ends", () => {
  const candidates = new CandidateArray(model.vocabularySize);
  const grammar = new Grammar(model, JSON_OBJECT_GRAMMAR, candidates);
  // Brackets in a string are text.
  const opened = [...'{"'].map((text) => draw(grammar, [text])).join("");
  let text = opened + Array.from({ length: 300 }, () => draw(grammar, ["["])).join("");
  text += [...'":'].map((next) => draw(grammar, [next])).join("");
  for (let i = 0; i < 300; i++) text += draw(grammar, ["[", "]", ",", "}"]);
  const deepest = text.slice(text.indexOf(":") + 1).match(/^\[+/)?.[0].length;
  expect(deepest).toBe(255);
  while (!text.endsWith("}")) {
    const next = draw(grammar, ["]", "}"]);
    expect(next).not.toBe("");
    text += next;
  }
  expect(Object.keys(JSON.parse(text))).toEqual(["[".repeat(300)]);
  grammar.free();
});
