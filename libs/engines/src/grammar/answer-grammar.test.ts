import { describe, expect, it } from "vitest";
import { callFormOf, HERMES } from "../text/call-form.ts";
import { type AnswerStyle, compileAnswer } from "./answer-grammar.ts";
import { markedBytes } from "./marked-bytes.ts";
import { GrammarMatcher, MatchCache } from "./matcher.ts";

const TOOLS = [
  { name: "add", parameters: { type: "object", properties: { n: { type: "integer" } } } },
  { name: "now", parameters: { type: "object", properties: {} } },
];
const ADD = '<tool_call>\n{"name": "add", "arguments": {"n": 3}}\n</tool_call>';
const NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>';

interface Options extends Partial<Parameters<typeof compileAnswer>[0]>, Partial<AnswerStyle> {}

/** Whether a text fits, and whether it may end there. */
function follow(text: string | Uint8Array, options: Options) {
  const { form = HERMES, reasoning, marks = [], ...given } = options;
  const source = { tools: TOOLS, isRequired: false, isParallel: true, answer: undefined, ...given };
  const program = compileAnswer(source, { form, reasoning, marks });
  const matcher = new GrammarMatcher(program, new MatchCache());
  const state = matcher.steps(matcher.start(), Buffer.from(text));
  return state === null ? "refused" : state.isComplete ? "complete" : "begun";
}

const required = { isRequired: true };
const single = { isParallel: false };
const answer = { answer: { type: "null" } };

describe("answer grammar: tools", () => {
  it.each<[string, string, Options, string]>([
    ["a call", ADD, required, "complete"],
    ["other text where a call is required", "Hello", required, "refused"],
    ["free text", "Hello <tool", {}, "complete"],
    ["free text and calls", `Hello ☃\n${ADD}\n${NOW}`, {}, "complete"],
    ["text behind a call", `${ADD} so`, {}, "refused"],
    ["two calls where one is allowed", `${ADD}\n${NOW}`, single, "refused"],
    ["the mark in another form", "<tool_call>x", {}, "refused"],
    ["an unknown function", '<tool_call>\n{"name": "sub', {}, "refused"],
    ["arguments of another type", ADD.replace("3", '"3"'), {}, "refused"],
    ["arguments of a function without any", NOW.replace("{}", '{"a": 1}'), {}, "refused"],
    ["a call that is cut", ADD.slice(0, -5), {}, "begun"],
    ["an answer by its schema", "null", answer, "complete"],
    ["a call in its place", NOW, answer, "complete"],
    ["free text in its place", "Hello", answer, "refused"],
  ])("%s", (_, text, options, expected) => {
    expect(follow(text, options)).toBe(expected);
  });
});

const LLAMA = callFormOf('tools <|start_header_id|> ipython "parameters": ') ?? HERMES;
const MISTRAL = callFormOf("tools [TOOL_CALLS]") ?? HERMES;
const MISTRAL_IDS = callFormOf("tools [TOOL_CALLS] [CALL_ID] [ARGS]") ?? HERMES;
const GRANITE = callFormOf("tools <|tool_call|> <|start_of_role|>") ?? HERMES;

describe("answer grammar: in its family's form", () => {
  const one = '{"name": "add", "parameters": {"n": 3}}';
  const two = '{"name": "add", "arguments": {"n": 3}}, {"name": "now", "arguments": {}}';
  it.each<[string, string, Options, string]>([
    ["Llama's call", one, { form: LLAMA, ...required }, "complete"],
    ["Llama's mark", `<|python_tag|>${one}`, { form: LLAMA, ...required }, "complete"],
    ["Llama's calls", `${one}; ${one}`, { form: LLAMA }, "complete"],
    ["a call behind text and the mark", `Well <|python_tag|>${one}`, { form: LLAMA }, "complete"],
    ["an object that is no call", '{"name": "Ann"}', { form: LLAMA }, "complete"],
    ["an object that is a cut call", '{"name": "add"}', { form: LLAMA }, "refused"],
    ["Mistral's calls", `[TOOL_CALLS] [${two}]`, { form: MISTRAL, ...required }, "complete"],
    ["Mistral's calls behind text", `So [TOOL_CALLS][${two}]`, { form: MISTRAL }, "complete"],
    [
      "ids",
      `[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcdef123"}]`,
      { form: MISTRAL },
      "complete",
    ],
    ["two of one", `[TOOL_CALLS][${two}]`, { form: MISTRAL, ...single }, "refused"],
    [
      "names and arguments",
      '[TOOL_CALLS]add[ARGS]{"n": 3}[TOOL_CALLS]now[ARGS]{}',
      { form: MISTRAL_IDS },
      "complete",
    ],
    [
      "ids between them",
      "[TOOL_CALLS]now[CALL_ID]abcdef123[ARGS]{}",
      { form: MISTRAL_IDS, ...required },
      "complete",
    ],
    ["Granite's calls", `<|tool_call|>[${two}]`, { form: GRANITE, ...required }, "complete"],
    ["Granite's list that is open", `<|tool_call|>[${two}`, { form: GRANITE }, "begun"],
  ])("%s", (_, text, options, expected) => {
    expect(follow(text, options)).toBe(expected);
  });

  it("a mark that is a control token is drawn as that token alone", () => {
    const options = { form: MISTRAL, marks: ["[TOOL_CALLS]"], ...required };
    const mark = markedBytes(Buffer.from("[TOOL_CALLS]"));
    expect(follow(Buffer.concat([mark, Buffer.from(` [${two}]`)]), options)).toBe("complete");
    expect(follow(`[TOOL_CALLS] [${two}]`, options)).toBe("refused");
  });
});

describe("answer grammar: reasoning", () => {
  const schema = { tools: [], answer: { type: "integer" } };
  it.each<[string, string, Options, string]>([
    ["is free before a schema", "<think>\n{hm <tool_call></think>\n\n7", schema, "complete"],
    ["may be left out", "7", schema, "complete"],
    ["must end", "<think>\n7", schema, "begun"],
    ["is no answer", "<think>a</think>", schema, "begun"],
    ["is free before a required call", `<think><tool_call></think>${NOW}`, required, "complete"],
    ["is followed by the call alone", "<think>a</think>b", required, "refused"],
    ["is free before free text", "<think>a</think>b", {}, "complete"],
  ])("%s", (_, text, options, expected) => {
    expect(follow(text, { ...options, reasoning: "tagged" })).toBe(expected);
  });

  it("that the prompt has begun ends with its tag", () => {
    expect(follow("a {</think>7", { ...schema, reasoning: "open" })).toBe("complete");
    expect(follow("7", { ...schema, reasoning: "open" })).toBe("begun");
    const marks = ["<think>", "</think>"];
    const end = Buffer.concat([Buffer.from("a"), markedBytes(Buffer.from("</think>"))]);
    const text = Buffer.concat([end, Buffer.from("7")]);
    expect(follow(text, { ...schema, reasoning: "open", marks })).toBe("complete");
  });
});
