// holds: api-json-schema

import { describe, expect, it } from "vitest";
import { GrammarMatcher, MatchCache } from "./matcher.ts";
import { compileSchema } from "./schema-grammar.ts";

/** The linter takes an object with it for a promise. */
const THEN = "then";

describe("schema grammar: exclusion is exact for", () => {
  const isText = (schema: object, text: string) => {
    const matcher = new GrammarMatcher(compileSchema(schema), new MatchCache());
    return matcher.steps(matcher.start(), Buffer.from(text))?.isComplete === true;
  };
  const kind = (name: string) => ({ properties: { kind: { const: name } }, required: ["kind"] });

  it.each<[string, object, string[], string[]]>([
    [
      "values of texts",
      { type: "string", not: { enum: ["no", "ü"] } },
      ['"yes"', '"n"', '""'],
      ['"no"', '"ü"'],
    ],
    ["values of numbers", { type: "integer", not: { const: 7 } }, ["6", "70", "-7"], ["7"]],
    [
      "spellings of numbers",
      { type: "number", not: { enum: [0, 2.5] } },
      ["2.51", "1", "0.1"],
      ["0", "-0", "0.0", "2.5", "2.50"],
    ],
    ["other values", { not: { enum: [null, true] } }, ["false", '"true"', "1"], ["null", "true"]],
    ["a type", { not: { type: "string" } }, ["1", "null", "[]"], ['"a"']],
    [
      "whole numbers",
      { type: "number", not: { type: "integer" } },
      ["1.5", "-0.25"],
      ["1", "1.0", "10"],
    ],
    ["a pattern", { type: "string", not: { pattern: "^x" } }, ['"ax"', '""'], ['"x"', '"xy"']],
    [
      "a pattern beside control characters",
      { type: "string", not: { pattern: "x" } },
      ['"\\u0000"', '"\\u0001a"'],
      ['"\\u0000x"', '"x\\u0001"'],
    ],
    ["bounds", { type: "integer", not: { minimum: 3, maximum: 5 } }, ["2", "6"], ["3", "4", "5"]],
    [
      "a member",
      { type: "object", additionalProperties: { type: "null" }, not: { required: ["a"] } },
      ['{"b":null}', "{}"],
      ['{"a":null}'],
    ],
    [
      "alternatives that overlap",
      { oneOf: [{ type: "integer" }, { type: "number", minimum: 5 }] },
      ["4", "5.5"],
      ["5", "12", "4.5"],
    ],
    [
      "alternatives of types that are not said",
      { oneOf: [kind("a"), { type: "string" }] },
      ['{"kind":"a"}'],
      ['"a"'],
    ],
    [
      "a condition",
      {
        type: "object",
        properties: { kind: { enum: ["a", "b"] }, size: { type: "integer" } },
        required: ["kind"],
        additionalProperties: false,
        if: kind("a"),
        [THEN]: { required: ["size"] },
        else: { properties: { size: false } },
      },
      ['{"kind":"a","size":1}', '{"kind":"b"}'],
      ['{"kind":"a"}', '{"kind":"b","size":1}'],
    ],
  ])("%s", (_, schema, texts, others) => {
    expect(texts.filter((text) => !isText(schema, text))).toEqual([]);
    expect(others.filter((text) => isText(schema, text))).toEqual([]);
  });

  it("a recursive schema", () => {
    const tree = {
      type: "object",
      properties: { kid: { $ref: "#/$defs/tree" }, leaf: { type: "null" } },
    };
    const schema = {
      type: "object",
      properties: { value: { not: { $ref: "#/$defs/tree" } } },
      required: ["value"],
      $defs: { tree },
    };
    expect(isText(schema, '{"value":1}')).toBe(true);
    expect(isText(schema, '{"value":{"kid":{"leaf":1}}}')).toBe(true);
    expect(isText(schema, '{"value":{"kid":{"leaf":null}}}')).toBe(false);
  });

  it("additionalItems holds behind a list of items", () => {
    const items = [{ type: "boolean" }];
    expect(isText({ type: "array", items, additionalItems: false }, "[true]")).toBe(true);
    expect(isText({ type: "array", items, additionalItems: false }, "[true,1]")).toBe(false);
    expect(isText({ type: "array", items, additionalItems: { const: 1 } }, "[true,1]")).toBe(true);
  });

  it("unevaluatedProperties forbids what alternatives only exclude", () => {
    const kind = (name: string) => ({ properties: { [name]: { const: 1 } }, required: [name] });
    const schema = { type: "object", oneOf: [kind("a"), kind("b")], unevaluatedProperties: false };
    expect(isText(schema, '{"a":1}')).toBe(true);
    expect(isText(schema, '{"a":1,"b":2}')).toBe(false);
    expect(isText(schema, '{"a":1,"c":2}')).toBe(false);
  });
});
