// holds: api-json-schema

import { type Random, seededRandom } from "@heddle/base/random";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { GrammarMatcher, MatchCache } from "./matcher.ts";
import { SchemaFault } from "./schema-fault.ts";
import { compileSchema } from "./schema-grammar.ts";

/** Random schemas; of those that exclude others twice as many. */
const RUNS = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 15);

/** The linter takes an object with it for a promise. */
const THEN = "then";
/** Bytes after which a text is led to its end. */
const LONG = 150;
const CLOSING = [...Buffer.from('"}]0')];
const TEXTS_OF_EACH = 6;
/** Formats that ajv-formats has not. */
const OTHER_INTEGERS = [
  ["int8", -128, 127],
  ["uint8", 0, 255],
  ["uint32", 0, 4_294_967_295],
] as const;

/** A text of the grammar by random bytes; undefined where it gets too long. */
function randomText(matcher: GrammarMatcher, random: Random): string | undefined {
  const bytes: number[] = [];
  let state = matcher.start();
  while (bytes.length < 5000) {
    const fitting = Array.from({ length: 256 }, (_, byte) => byte).filter((byte) =>
      matcher.step(state, byte),
    );
    if (state.isComplete && (fitting.length === 0 || random() < 0.3)) {
      return Buffer.from(bytes).toString();
    }
    expect(fitting, `after ${Buffer.from(bytes)}`).not.toEqual([]);
    const closing = fitting.filter((byte) => CLOSING.includes(byte));
    const isLed = bytes.length > LONG && closing.length > 0 && random() < 0.8;
    const among = isLed ? closing : fitting;
    const byte = among[Math.floor(random() * among.length)] as number;
    bytes.push(byte);
    state = matcher.step(state, byte) as NonNullable<ReturnType<GrammarMatcher["step"]>>;
  }
  return undefined;
}

/** Fails where a text of the schema's grammar is not valid for the schema; gives the texts. */
function checkTexts(schema: object | boolean, seed: number): string[] {
  const matcher = new GrammarMatcher(compileSchema(schema), new MatchCache());
  const ajv = new Ajv2020({ strict: false, allErrors: true, multipleOfPrecision: 9 });
  addFormats.default(ajv);
  for (const [name, least, most] of OTHER_INTEGERS) {
    const validate = (value: number) => Number.isInteger(value) && value >= least && value <= most;
    ajv.addFormat(name, { type: "number", validate });
  }
  const validate = ajv.compile(schema);
  const random = seededRandom(seed);
  return Array.from({ length: TEXTS_OF_EACH }, () => {
    const text = randomText(matcher, random);
    if (text === undefined) return "";
    const isValid = validate(JSON.parse(text));
    expect(
      isValid,
      `${text} of ${JSON.stringify(schema)}: ${ajv.errorsText(validate.errors)}`,
    ).toBe(true);
    return text;
  });
}

const bound = fc.oneof(
  fc.integer({ min: -1200, max: 1200 }),
  fc.double({ min: -9, max: 9, noNaN: true }),
);
const count = fc.integer({ min: 0, max: 4 });
const names = ["a", "b", 'say "hi"', "ü"];
const { schema: anySchema } = fc.letrec<{ schema: object }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom(
      { type: "null" },
      { type: "boolean" },
      { const: "x\n☃" },
      { enum: [1, "1", null] },
    ),
    fc.record({ type: fc.constantFrom("integer", "number"), minimum: bound }),
    fc.record({ type: fc.constantFrom("integer", "number"), exclusiveMaximum: bound }),
    fc.record({ type: fc.constant("number"), minimum: bound, maximum: bound }),
    fc.record({
      type: fc.constantFrom("integer", "number"),
      minimum: bound,
      multipleOf: fc.constantFrom(3, 12, 0.5, 0.01, 2.5),
    }),
    fc.record({ type: fc.constant("number"), exclusiveMinimum: bound, exclusiveMaximum: bound }),
    fc.record({
      type: fc.constant("string"),
      minLength: count,
      maxLength: fc.integer({ min: 4, max: 6 }),
    }),
    fc.record({
      type: fc.constant("string"),
      pattern: fc.constantFrom("^[a-c]+$", "x.y", "^(é|\\w\\d)", "\\s$"),
    }),
    fc.record({
      type: fc.constant("string"),
      format: fc.constantFrom("date", "date-time", "email", "ipv4", "uuid"),
    }),
    fc.record({
      type: fc.constant("object"),
      properties: fc.dictionary(fc.constantFrom(...names), tie("schema")),
      required: fc.uniqueArray(fc.constantFrom(...names), { maxLength: 2 }),
      additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
    }),
    fc.record({
      type: fc.constant("array"),
      items: tie("schema"),
      minItems: count,
      maxItems: fc.integer({ min: 4, max: 9 }),
    }),
    fc.record({
      type: fc.constant("array"),
      prefixItems: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }),
      minItems: count,
    }),
    fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({
      anyOf: fc.tuple(tie("schema"), tie("schema")),
      type: fc.constantFrom("string", "object", "number"),
    }),
  ),
}));

it("schema grammar: every text of a random schema's grammar is valid for it", () => {
  let compiled = 0;
  const property = fc.property(anySchema, fc.integer(), (schema, seed) => {
    try {
      checkTexts(schema, seed);
      compiled++;
    } catch (error) {
      // A random schema may contradict itself.
      if (!(error instanceof SchemaFault)) throw error;
    }
  });
  fc.assert(property, { numRuns: RUNS });
  expect(compiled).toBeGreaterThan(RUNS / 4);
});

const NODE = {
  type: "object",
  properties: {
    value: { type: "integer" },
    next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] },
  },
  required: ["value", "next"],
  additionalProperties: false,
};

describe("schema grammar: valid texts of", () => {
  it.each<[string, object | boolean, RegExp]>([
    ["a recursive schema", { $ref: "#/$defs/node", $defs: { node: NODE } }, /"next"/],
    ["any object", { type: "object" }, /^\{/],
    ["anything", true, /./],
    ["bounds with fractions", { type: "number", minimum: -2.55, exclusiveMaximum: 0.125 }, /^[-0]/],
    [
      "bounds of tiny numbers",
      { type: "number", exclusiveMinimum: 0, maximum: 1e-7 },
      /^0\.000000/,
    ],
    [
      "bounds that are close",
      { type: "number", exclusiveMinimum: 8.9999999999558, exclusiveMaximum: 8.999999999955808 },
      /^8\.99/,
    ],
    [
      "a range of integers",
      { type: "integer", minimum: 98, maximum: 1002 },
      /^(9[89]|[1-9]\d\d|100[0-2])$/,
    ],
    [
      "negative integers",
      { type: "integer", exclusiveMaximum: 0, minimum: -12 },
      /^-([1-9]|1[012])$/,
    ],
    [
      "the last ones of int32",
      { type: "integer", format: "int32", minimum: 2 ** 31 - 3 },
      /^214748364[567]$/,
    ],
    ["a uint8 of any type", { format: "uint8", maximum: 12.5 }, /./],
    [
      "a uint32 among numbers",
      { type: "number", format: "uint32", exclusiveMinimum: 2 ** 32 - 4 },
      /^429496729[345]$/,
    ],
    [
      "the last ones of int64",
      { type: "integer", format: "int64", minimum: 2 ** 63 - 4096 },
      /^922337203685477\d{4}$/,
    ],
    ["values of int8", { enum: [-129, -128, 127, 128, 1.5], format: "int8" }, /^(-128|127)$/],
    ["multiples", { type: "integer", multipleOf: 7, minimum: -30, maximum: 700 }, /^-?\d+$/],
    ["multiples of a number", { type: "number", multipleOf: 250 }, /^-?\d*0(\.0+)?$/],
    [
      "multiples of cents",
      { type: "number", multipleOf: 0.05, minimum: 0, exclusiveMaximum: 3 },
      /^[0-2](\.\d[05]?0*)?$/,
    ],
    [
      "common multiples",
      { allOf: [{ multipleOf: 4 }, { multipleOf: 6 }], type: "integer", minimum: 1, maximum: 24 },
      /^(12|24)$/,
    ],
    ["values that are multiples", { enum: [1, 0.3, 0.35], multipleOf: 0.1 }, /^(1|0.3)$/],
    ["multiples of a large step", { type: "number", multipleOf: 1e3, minimum: 1 }, /000(\.0+)?$/],
    [
      "a pattern of a length",
      { type: "string", pattern: "ab|^x", minLength: 3, maxLength: 5 },
      /ab|^"x/,
    ],
    ["a URI", { type: "string", format: "uri" }, /^"https?:/],
    ["an address", { type: "string", format: "ipv6" }, /:/],
    ["a duration", { type: "string", format: "duration" }, /^"P/],
    [
      "a host and a time",
      {
        type: "array",
        prefixItems: [
          { format: "hostname", type: "string" },
          { format: "time", type: "string" },
        ],
        minItems: 2,
      },
      /^\[/,
    ],
    [
      "members that merge",
      {
        allOf: [{ properties: { a: { type: "integer" } }, required: ["a"] }, { $ref: "#/$defs/b" }],
        $defs: { b: { type: "object", properties: { b: { const: 1 } }, required: ["b"] } },
      },
      /"a":.*"b":/s,
    ],
    [
      "alternatives that are distinguished",
      {
        oneOf: [
          { type: "object", properties: { kind: { const: "a" } }, required: ["kind"] },
          { type: "object", properties: { kind: { const: "b" } }, required: ["kind"] },
        ],
      },
      /"kind"/,
    ],
    [
      "names of a pattern",
      {
        type: "object",
        propertyNames: { pattern: "^[a-c]{2}$" },
        additionalProperties: { type: "null" },
        minProperties: 1,
      },
      /"[a-c]{2}": ?\s*null/,
    ],
    ["several types", { type: ["string", "null"], maxLength: 1 }, /^(null|".{0,2}")$/su],
    [
      "what an alternative names, and nothing else",
      {
        type: "object",
        anyOf: [{ properties: { a: { const: 1 } }, required: ["a"] }, { required: ["b"] }],
        properties: { b: { type: "null" } },
        unevaluatedProperties: false,
      },
      /^\{/,
    ],
    ["no further elements", { type: "array", unevaluatedItems: false }, /^\[\s*\]$/],
    [
      "nested levels that must end",
      {
        $ref: "#/$defs/tree",
        $defs: {
          tree: {
            type: "object",
            properties: { kids: { type: "array", items: { $ref: "#/$defs/tree" } } },
            required: ["kids"],
          },
        },
      },
      /"kids"/,
    ],
  ])("%s", (_, schema, expected) => {
    for (const text of checkTexts(schema, 7)) if (text !== "") expect(text).toMatch(expected);
  });
});

const near = fc.oneof(fc.integer({ min: -1200, max: 1200 }), fc.constantFrom(0.25, -2.5, 7.75));
/** What exclusion can be held of: every keyword that a complement has. */
const { schema: excludable } = fc.letrec<{ schema: object }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 2 },
    fc.record({ type: fc.constantFrom("null", "integer", "number", "string", "object", "array") }),
    fc.record({ type: fc.constantFrom(["string", "null"], ["integer", "array"]) }),
    fc.constantFrom<object>(
      { const: 0 },
      { const: 12.5 },
      { enum: ["a", "ü", "", null] },
      { enum: [true, 1, -3, 1000] },
    ),
    fc.record({ minimum: near }),
    fc.record({ exclusiveMaximum: near, type: fc.constant("number") }),
    fc.record({ minLength: count, maxLength: fc.integer({ min: 4, max: 6 }) }),
    fc.record({ pattern: fc.constantFrom("^[a-c]+$", "x", "^.?$") }),
    fc.record({ required: fc.uniqueArray(fc.constantFrom(...names), { maxLength: 2 }) }),
    fc.record({ properties: fc.dictionary(fc.constantFrom(...names), tie("schema")) }),
    fc.record({ prefixItems: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ minItems: count, maxItems: fc.integer({ min: 4, max: 5 }) }),
    fc.record({ allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ not: tie("schema") }),
    fc.record({ if: tie("schema"), [THEN]: tie("schema"), else: tie("schema") }),
  ),
}));

it("schema grammar: what not, if and oneOf forbid is in no text", () => {
  let compiled = 0;
  const schemas = fc.oneof(
    fc.record({ not: excludable }),
    fc.record({ type: fc.constantFrom("string", "number", "object", "array"), not: excludable }),
    fc.record({ oneOf: fc.tuple(excludable, excludable) }),
    fc.record({ oneOf: fc.tuple(excludable, excludable, excludable) }),
    fc.record({ if: excludable, [THEN]: anySchema, else: excludable }),
    fc.record({ allOf: fc.tuple(anySchema, fc.record({ not: excludable })) }),
  );
  const property = fc.property(schemas, fc.integer(), (schema, seed) => {
    try {
      checkTexts(schema, seed);
      compiled++;
    } catch (error) {
      if (!(error instanceof SchemaFault)) throw error;
    }
  });
  fc.assert(property, { numRuns: 2 * RUNS });
  expect(compiled).toBeGreaterThan((2 * RUNS) / 3);
});

describe("schema grammar: a fault names its place:", () => {
  it.each<[unknown, string, string]>([
    [
      { type: "object", properties: { "a/b": { contains: {} } } },
      "/properties/a~1b/contains",
      "contains is not supported",
    ],
    [{ type: "array", uniqueItems: true }, "/uniqueItems", "not supported"],
    [
      { unevaluatedProperties: false, not: { const: 1 } },
      "/unevaluatedProperties",
      "beside not is not supported",
    ],
    [{ type: "integer", multipleOf: 0 }, "/multipleOf", "a number above 0"],
    [{ type: "number", multipleOf: 1234.567 }, "/multipleOf", "use fewer digits"],
    [
      { type: "number", minimum: 1, maximum: 2, multipleOf: 0.7, not: { multipleOf: 2 } },
      "/not/multipleOf",
      "not supported",
    ],
    [{ type: "number", minimum: 1.5, maximum: 2, multipleOf: 1.25 }, "", "contradicts itself"],
    [{ type: "integer", format: "int32", minimum: 2 ** 31 }, "", "contradicts itself"],
    [{ enum: [0.3, 0.35], multipleOf: 0.2 }, "", "contradicts itself"],
    [{ $ref: "https://example.com/x" }, "/$ref", "only references into the same schema"],
    [{ $ref: "#/$defs/none" }, "/$ref", "there is nothing at"],
    [{ type: "text" }, "/type", "expected one or several of null"],
    [{ type: "string", format: "phone" }, "/format", "the format phone is not supported"],
    [{ type: "string", pattern: "(a)\\1" }, "/pattern", "the pattern is not supported"],
    [{ type: "string", pattern: "a(?=b)" }, "/pattern", "only the assertions"],
    [{ type: "string", pattern: "(" }, "/pattern", "the pattern is not supported"],
    [
      { oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] },
      "/oneOf/0",
      "valid for this and a later alternative",
    ],
    [{ not: {} }, "", "contradicts itself"],
    [{ not: { not: { type: "text" } } }, "/not/not/type", "expected one or several"],
    [{ not: { items: { type: "null" } } }, "/not/items", "items is not supported within not"],
    [{ not: { format: "email" } }, "/not/format", "format is not supported within not"],
    [{ not: { const: {} } }, "/not", "objects and arrays in enum or const within not"],
    [{ not: { $ref: "#" } }, "/not/$ref", "refers to itself"],
    [{ if: { uniqueItems: true }, [THEN]: false }, "/if/uniqueItems", "not supported"],
    [
      { not: { oneOf: [{ minLength: 2 }, { maxLength: 4 }] } },
      "/not/oneOf/0",
      "a later alternative",
    ],
    [{ anyOf: [] }, "/anyOf", "expected a list"],
    [{ $ref: "#" }, "", "contradicts itself or never ends"],
    [{ type: "object", properties: { self: { $ref: "#" } }, required: ["self"] }, "", "never ends"],
    [{ enum: [1], type: "string" }, "", "contradicts itself"],
    [{ type: "object", properties: { a: 3 } }, "/properties/a", "an object or a boolean"],
    [{ type: "string", minLength: -1 }, "/minLength", "a whole number"],
    [3, "", "an object or a boolean"],
  ])("%j", (schema, pointer, reason) => {
    let fault: unknown;
    try {
      compileSchema(schema);
    } catch (error) {
      fault = error;
    }
    expect(fault).toBeInstanceOf(SchemaFault);
    expect(fault).toMatchObject({ pointer, message: expect.stringContaining(reason) });
  });
});

it("matcher: nesting is bounded, and a text at the bound can end", () => {
  const matcher = new GrammarMatcher(compileSchema({ type: "array" }), new MatchCache());
  const opened = matcher.steps(matcher.start(), Buffer.from("[".repeat(128)));
  expect(opened).not.toBeNull();
  if (opened === null) return;
  expect(matcher.step(opened, 0x5b)).toBeNull();
  expect(matcher.steps(opened, Buffer.from("]".repeat(128)))?.isComplete).toBe(true);
});

it("matcher: what is kept is dropped when it is full, and texts continue", () => {
  const cache = new MatchCache();
  const matcher = new GrammarMatcher(compileSchema({ type: "string" }), cache);
  const begun = matcher.steps(matcher.start(), Buffer.from('"a'));
  cache.charge(matcher, 2 ** 40);
  expect(begun?.next).toBeUndefined();
  expect(begun && matcher.steps(begun, Buffer.from('b"'))?.isComplete).toBe(true);
});
