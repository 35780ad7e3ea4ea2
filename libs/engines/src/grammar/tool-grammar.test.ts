import { describe, expect, it } from "vitest";
import { GrammarMatcher, MatchCache } from "./matcher.ts";
import { compileTools } from "./tool-grammar.ts";

const TOOLS = [
  { name: "add", parameters: { type: "object", properties: { n: { type: "integer" } } } },
  { name: "now", parameters: { type: "object", properties: {} } },
];
const ADD = '<tool_call>\n{"name": "add", "arguments": {"n": 3}}\n</tool_call>';
const NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>';

/** Whether a text fits, and whether it may end there. */
function follow(text: string, options: Partial<Parameters<typeof compileTools>[1]>) {
  const all = { isRequired: false, isParallel: true, answer: undefined, ...options };
  const matcher = new GrammarMatcher(compileTools(TOOLS, all), new MatchCache());
  const state = matcher.steps(matcher.start(), Buffer.from(text));
  return state === null ? "refused" : state.isComplete ? "complete" : "begun";
}

describe("tool grammar", () => {
  it.each([
    ["a call", ADD, { isRequired: true }, "complete"],
    ["other text where a call is required", "Hello", { isRequired: true }, "refused"],
    ["free text", "Hello <tool", {}, "complete"],
    ["free text and calls", `Hello ☃\n${ADD}\n${NOW}`, {}, "complete"],
    ["text behind a call", `${ADD} so`, {}, "refused"],
    ["two calls where one is allowed", `${ADD}\n${NOW}`, { isParallel: false }, "refused"],
    ["the mark in another form", "<tool_call>x", {}, "refused"],
    ["an unknown function", '<tool_call>\n{"name": "sub', {}, "refused"],
    ["arguments of another type", ADD.replace("3", '"3"'), {}, "refused"],
    ["arguments of a function without any", NOW.replace("{}", '{"a": 1}'), {}, "refused"],
    ["a call that is cut", ADD.slice(0, -5), {}, "begun"],
    ["an answer by its schema", "null", { answer: { type: "null" } }, "complete"],
    ["a call in its place", NOW, { answer: { type: "null" } }, "complete"],
    ["free text in its place", "Hello", { answer: { type: "null" } }, "refused"],
  ])("%s", (_, text, options, expected) => {
    expect(follow(text, options)).toBe(expected);
  });
});
