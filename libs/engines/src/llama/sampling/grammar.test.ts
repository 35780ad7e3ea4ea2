// holds: api-long-prompt-others

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seededRandom } from "@heddle/base/random";
import { afterAll, beforeAll, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { GrammarMatcher, MatchCache } from "../../grammar/matcher.ts";
import { compileSchema } from "../../grammar/schema-grammar.ts";
import { buildTokenTrie } from "../../grammar/token-trie.ts";
import { type LoadedModel, loadModel } from "../engine-thread/model.ts";
import { stepRingMemory } from "../protocol/step-ring.ts";
import { ENDS_GENERATION, IS_CONTROL, type VocabularyTable } from "../protocol/thread-messages.ts";
import { COMPLETE, Grammar, type GrammarTokens, STUCK } from "./grammar.ts";

let directory: string;
let model: LoadedModel;
let table: VocabularyTable;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-grammar-"));
  const modelPath = join(directory, "tiny.gguf");
  await writeTinyModel(modelPath);
  ({ model, table } = loadModel({
    modelPath,
    device: "cpu",
    gpuLayers: 0,
    threads: 1,
    prefillBudgetTokens: 32,
    contextTokens: 64,
    maxSequences: 1,
    wake: new SharedArrayBuffer(4),
    steps: stepRingMemory(),
  }));
});
afterAll(async () => {
  model.llama.free(model.context);
  await rm(directory, { recursive: true });
});

/** A grammar over the tokens that `isKnown` has, by their texts. */
function grammarOf(schema: object, isKnown = (_text: string) => true): Grammar {
  const known = (token: number) =>
    !((table.flags[token] as number) & (ENDS_GENERATION | IS_CONTROL)) && isKnown(textOf(token));
  const spellings = { count: table.flags.length, spelling: model.tokenBytes };
  const tokens: GrammarTokens = { ...model, trie: buildTokenTrie(spellings, known) };
  return new Grammar(new GrammarMatcher(compileSchema(schema), new MatchCache()), tokens);
}

function textOf(token: number): string {
  return Buffer.from(model.tokenBytes(token)).toString();
}

function tokenOf(text: string): number {
  return model.flags.findIndex((_, token) => textOf(token) === text);
}

/** What is drawn where these are the likeliest, the first most of all; "" where none is. */
function draw(grammar: Grammar, wanted: readonly string[], left = 10_000): string {
  const logits = new Float32Array(model.vocabularySize);
  const tokens = Array.from({ length: model.vocabularySize }, (_, token) => token);
  wanted.forEach((text, at) => {
    logits[tokens.findIndex((token) => textOf(token) === text)] = 100 - at;
  });
  const token = grammar.draw(logits, left, (allowed) => allowed.indexOf(Math.max(...allowed)));
  if (token < 0 || (model.flags[token] as number) & ENDS_GENERATION) return "";
  grammar.accept(token);
  return textOf(token);
}

it("grammar: JSON has at most the allowed depth for any likeliest token, and ends", () => {
  const grammar = grammarOf({ type: "object", additionalProperties: true });
  // Brackets in a string are text.
  let text = draw(grammar, ["{"]) + draw(grammar, ['"']);
  const random = seededRandom(3);
  for (let i = 0; i < 300; i++) text += draw(grammar, [random() < 0.9 ? "[" : " "]);
  const name = text.slice(2);
  text += [...'":'].map((next) => draw(grammar, [next])).join("");
  for (let i = 0; i < 200; i++) {
    text += draw(grammar, random() < 0.2 ? [" ", "[", "]", ",", "}"] : ["[", "]", ",", "}"]);
  }
  const deepest = text
    .slice(text.indexOf(":") + 1)
    .match(/^[[ ]+/)?.[0]
    .replaceAll(" ", "").length;
  expect(deepest).toBe(127);
  while (!text.endsWith("}")) {
    const next = draw(grammar, ["]", "}"]);
    expect(next).not.toBe("");
    text += next;
  }
  expect(Object.keys(JSON.parse(text))).toEqual([name]);
});

it("grammar: the end is drawn only where the text is complete, no control token", () => {
  const grammar = grammarOf({ enum: ["yes", "no"] });
  let text = "";
  for (let next = draw(grammar, ["<|im_end|>", "<|im_start|>"]); next !== ""; ) {
    text += next;
    next = draw(grammar, ["<|im_end|>", "<|im_start|>"]);
  }
  expect(["yes", "no"]).toContain(JSON.parse(text));
});

it("grammar: what no token spells differs from a complete text", () => {
  const never = (logits: Float32Array) => logits.indexOf(Math.max(...logits));
  const stuck = grammarOf({ const: "xyz" }, (text) => text !== "x");
  draw(stuck, ['"']);
  expect(stuck.draw(new Float32Array(model.vocabularySize), 9, never)).toBe(STUCK);
  const complete = grammarOf({ type: "null" });
  for (const letter of "null") draw(complete, [letter]);
  const logits = new Float32Array(model.vocabularySize);
  model.flags.forEach((flags, token) => {
    if (flags & ENDS_GENERATION) logits[token] = Number.NEGATIVE_INFINITY;
  });
  expect(complete.draw(logits, 9, never)).toBe(COMPLETE);
});

/** What a model writes that repeats `part` as long as it may, and else the likeliest of `others`. */
function repeated(grammar: Grammar, part: string, others: string): string {
  let text = "";
  for (let at = 0, next = "-"; next !== "" && text.length < 2_000; text += next) {
    const wanted = part[at % part.length] as string;
    next = draw(grammar, [...new Set([wanted, ...others])]);
    at = next === wanted ? at + 1 : 0;
  }
  return text;
}

// holds: engine-repetition
it("grammar: a list or text that repeats itself without end is left, and no more", () => {
  const text = { type: "string" };
  const tags = { type: "array", items: text };
  const properties = { tags, note: text, kind: { enum: ["long", "s"] } };
  const required = Object.keys(properties);
  const grammar = grammarOf({ type: "object", properties, required, additionalProperties: false });
  for (const letter of '{"tags":["one","') expect(draw(grammar, [letter])).toBe(letter);
  const answer = JSON.parse(`{"tags":["one","${repeated(grammar, 'ab","', 'ab"l')}`);
  expect(answer.tags).toEqual(["one", ...Array(65).fill("ab")]);
  // What comes behind it is drawn freely, and not the shortest.
  expect(answer.note).toMatch(/^(ab)+a?$/);
  expect(answer.kind).toBe("long");
});

it("grammar: a nesting without end is left as a whole", () => {
  const schema = {
    type: "object",
    properties: { name: { type: "string" }, kids: { type: "array", items: { $ref: "#" } } },
    required: ["name", "kids"],
    additionalProperties: false,
  };
  const text = repeated(grammarOf(schema), '{"name":"a","kids":[', ']},{"name:');
  expect(JSON.parse(text)).toHaveProperty("kids");
  const levels = text.split("kids").length - 1;
  expect(levels).toBeGreaterThan(15);
  expect(levels).toBeLessThan(20);
});

it("grammar: its state follows from its text alone, also while it leaves a part", () => {
  const kids = { type: "array", items: { $ref: "#" } };
  const schema = { type: "object", properties: { name: { type: "string" }, kids } };
  const part = '{"name":"a","kids":[';
  /** What is drawn behind a text; the likeliest letter depends on its length alone. */
  const rest = (grammar: Grammar, begin: string): string => {
    let text = begin;
    for (let next = "-"; next !== "" && text.length < 600; text += next) {
      const wanted = part[text.length % part.length] as string;
      next = draw(grammar, [...new Set([wanted, ...']},{"name:'])]);
    }
    return text;
  };
  const whole = rest(grammarOf(schema), "");
  expect(whole.indexOf("}")).toBeGreaterThan(200);
  for (let cut = 11; cut < whole.length; cut += 29) {
    const grammar = grammarOf(schema);
    for (const letter of whole.slice(0, cut)) grammar.accept(tokenOf(letter));
    expect(rest(grammar, whole.slice(0, cut))).toBe(whole);
  }
});

it("grammar: members that repeat themselves are left sooner than elements", () => {
  const grammar = grammarOf({ type: "object", additionalProperties: { const: 0 } });
  for (const letter of '{"') expect(draw(grammar, [letter])).toBe(letter);
  const text = `{"${repeated(grammar, 'a":0,"', '}"')}`;
  expect(JSON.parse(text)).toHaveProperty("a", 0);
  expect(text.split(":").length - 1).toBeGreaterThan(15);
  expect(text.split(":").length - 1).toBeLessThan(25);
});

it("grammar: 60 equal elements are not left, nor what a schema counts", () => {
  const elements = (items: object, texts: string, ends: string, bounds: object = {}) => {
    const grammar = grammarOf({ type: "array", items, ...bounds });
    draw(grammar, ["["]);
    return JSON.parse(`[${repeated(grammar, texts, ends)}`).length;
  };
  const [zero, zeros] = [{ type: "integer" }, "0,".repeat(60)];
  const point = { type: "object", properties: { x: zero }, required: ["x"] };
  expect(elements(zero, `${zeros}1]`, "]0")).toBe(61);
  expect(elements(point, `${'{"x":0},'.repeat(60)}{"x":1}]`, "]0")).toBe(61);
  expect(elements(zero, zeros, "]0")).toBeGreaterThanOrEqual(128);
  expect(elements(zero, zeros, "]0")).toBeLessThan(140);
  for (const bounds of [{ minItems: 200, maxItems: 200 }, { maxItems: 200 }]) {
    expect(elements(zero, zeros, "]0", bounds)).toBe(200);
  }
});

const TREE = {
  type: "object",
  properties: { value: { type: "string" }, children: { type: "array", items: { $ref: "#" } } },
  required: ["value", "children"],
  additionalProperties: false,
};

/** The text of at most this many tokens, of a model that wants these, each time in another order. */
function within(grammar: Grammar, tokens: number, wanted: readonly string[], seed: number) {
  const random = seededRandom(seed);
  let text = "";
  for (let left = tokens; left > 0; left--) {
    const shuffled = wanted.map((each) => ({ each, at: random() })).sort((a, b) => a.at - b.at);
    const next = draw(
      grammar,
      shuffled.map(({ each }) => each),
      left,
    );
    if (next === "") break;
    text += next;
  }
  return text;
}

// holds: api-schema-within-limit
it("grammar: a text of any depth ends within its tokens where it can", () => {
  const shortest = '{"value":"","children":[]}'.length;
  for (let tokens = shortest; tokens < 300; tokens += 13) {
    const grammar = grammarOf(TREE);
    const text = within(grammar, tokens, [...'{[,"abc'], tokens);
    expect(() => JSON.parse(text), text).not.toThrow();
    expect(grammar.isCut).toBe(true);
  }
  const grammar = grammarOf(TREE);
  // No pair of letters is merged often enough for so few tokens.
  expect(within(grammar, shortest / 2 - 3, [..."{[abc"], 1)).not.toContain("}");
  expect(grammar.isCut).toBe(false);
});

it("grammar: what ends by itself within its tokens is not cut", () => {
  const text = '{"value":"abc","children":[{"value":"","children":[]}]}';
  for (const spare of [0, 1, 20]) {
    const grammar = grammarOf(TREE);
    let left = text.length + spare;
    for (const letter of text) expect(draw(grammar, [letter], left--)).toBe(letter);
    if (spare > 0) expect(draw(grammar, ["<|im_end|>"], left)).toBe("");
    expect(grammar.isCut).toBe(false);
  }
});

it("grammar: the way to the end is counted in the vocabulary's longest tokens", () => {
  const spelled = [...Array(256).keys()].map((byte) => Buffer.of(byte));
  const end = spelled.push(Buffer.from("<end>")) - 1;
  for (const text of ['{"value":"', '","children":[', "]}]}", "]}"])
    spelled.push(Buffer.from(text));
  const flags = new Uint8Array(spelled.length);
  flags[end] = ENDS_GENERATION;
  const tokenBytes = (token: number) => spelled[token] as Buffer;
  const table = { count: spelled.length, spelling: tokenBytes };
  const trie = buildTokenTrie(table, (token) => token !== end);
  const tokens = { vocabularySize: spelled.length, flags, tokenBytes, trie };
  const grammar = new Grammar(new GrammarMatcher(compileSchema(TREE), new MatchCache()), tokens);
  const wanted = [end + 1, 97, 98, 99, end + 2, end + 1, 100, 101, 102];
  let text = "";
  for (let left = 9; left > 0; left--) {
    const next = wanted[9 - left] as number;
    const token = grammar.draw(new Float32Array(spelled.length), left, (allowed) =>
      allowed[next] === 0 ? next : allowed.indexOf(0),
    );
    grammar.accept(token);
    text += tokenBytes(token);
    // The two last tokens are those of the shortest end.
    expect(grammar.isCut).toBe(left <= 2);
  }
  expect(text).toBe('{"value":"abc","children":[{"value":"d","children":[]}]}');
});

it("grammar: a mask has the tokens that fit, and no other, at every place of a text", () => {
  const inner = { type: "string", maxLength: 3 };
  const schema = {
    type: "array",
    items: {
      type: "object",
      properties: {
        name: { type: "string" },
        tag: inner,
        code: { type: "string", pattern: "^[a-e]{2,4}$" },
        n: { type: "number" },
        list: { type: "array", items: { anyOf: [inner, { $ref: "#" }] } },
      },
      required: ["name", "tag", "code", "n", "list"],
    },
  };
  const text =
    '[{"name": "a \\"\\n☃", "tag": "xyz", "code": "abc", "n": -1.5e3, "list": ["", [], "☃"]}]';
  const spellings = { count: table.flags.length, spelling: model.tokenBytes };
  const isText = (token: number) =>
    !((table.flags[token] as number) & (ENDS_GENERATION | IS_CONTROL));
  const trie = buildTokenTrie(spellings, isText);
  const matcher = new GrammarMatcher(compileSchema(schema), new MatchCache());
  let state = matcher.start();
  for (const byte of Buffer.from(text)) {
    const mask = matcher.maskOf(state, trie, model.vocabularySize);
    const given = [...table.flags.keys()].filter(
      (token) => (mask[token >>> 5] as number) & (1 << (token & 31)),
    );
    const fitting = [...table.flags.keys()].filter((token) => {
      const bytes = model.tokenBytes(token);
      return isText(token) && bytes.length > 0 && matcher.steps(state, bytes) !== null;
    });
    expect(given).toEqual(fitting);
    const next = matcher.step(state, byte);
    if (next === null) throw new Error("the text does not fit");
    state = next;
  }
  expect(state.isComplete).toBe(true);
});
