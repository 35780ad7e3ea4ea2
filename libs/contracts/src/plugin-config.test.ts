// holds: train-plugins

import { expect, test } from "vitest";
import { MAX_SCHEMA_BYTES, ownConfigCheck } from "./plugin-config.ts";

const SCHEMA = {
  type: "object",
  properties: {
    generations: { type: "integer", minimum: 1, maximum: 100, default: 10 },
    noise: { type: "object", properties: { deviation: { type: "number", exclusiveMinimum: 0 } } },
    kind: { anyOf: [{ enum: ["plain", "mirrored"] }, { type: "null" }] },
  },
  required: ["kind"],
};
const checkOf = (schema: object) => ownConfigCheck(JSON.stringify(schema));

test("plugin config: is validated by the schema, each fault with its path", () => {
  const check = checkOf(SCHEMA);
  expect(check?.({ kind: "plain" })).toEqual([]);
  const faults = check?.({ generations: 0, noise: { deviation: -1 }, noize: 1 });
  expect(faults?.map(({ param, code }) => [param, code])).toEqual([
    ["config.generations", "invalid_value"],
    ["config.noise.deviation", "invalid_value"],
    ["config.kind", "missing_required_parameter"],
    ["config.noize", "invalid_value"],
  ]);
});

test("plugin config: unknown fields are accepted if the schema allows them", () => {
  expect(checkOf({ type: "object", additionalProperties: true })?.({ any: 1 })).toEqual([]);
  expect(checkOf({ type: "object" })?.({ any: 1 })).toHaveLength(1);
});

test.each([
  ["a pattern", { a: { type: "string", pattern: "^(a+)+$" } }],
  ["a reference", { a: { $ref: "https://schemas.example/a" } }],
  ["a condition", { a: { if: { const: 1 }, not: {} } }],
  ["a keyword that is not known", { a: { type: "string", contentEncoding: "base64" } }],
  ["what is no schema", { a: 3 }],
])("plugin config: a schema with %s is left to the trainer", (_what, properties) => {
  expect(checkOf({ type: "object", properties })).toBeUndefined();
});

test("plugin config: an unusable schema leaves it to the trainer", () => {
  const large = { type: "object", description: "x".repeat(MAX_SCHEMA_BYTES) };
  let deep: object = { type: "object" };
  for (let i = 0; i < 9; i++) deep = { type: "object", properties: { a: deep } };
  const wide = { anyOf: Array.from({ length: 17 }, () => ({ type: "string" })) };
  expect(checkOf(large)).toBeUndefined();
  expect(checkOf(deep)).toBeUndefined();
  expect(checkOf({ type: "object", properties: { wide } })).toBeUndefined();
  for (const text of ["", "null", "[]", "{}", '{"type":"array"}']) {
    expect(ownConfigCheck(text)).toBeUndefined();
  }
});
