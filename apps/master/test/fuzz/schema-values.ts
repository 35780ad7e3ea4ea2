import fc from "fast-check";

/** The part of a JSON Schema that the API's document uses. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly minItems?: number;
  readonly minLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly format?: string;
}

export type Schemas = Readonly<Record<string, Schema>>;

const MAX_DEPTH = 6;
const MAX_ITEMS = 3;

/** Values that break parsers, whatever was asked for. */
export const JUNK: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    null,
    true,
    "",
    " ",
    "\u0000",
    "\ud800",
    "../../etc/passwd",
    "__proto__",
    "constructor",
    "%00%2f",
    "'; drop table keys; --",
    "{{7*7}}",
    "x".repeat(20_000),
    "\u202eabc\u0301\u200d",
    0,
    -0,
    -1,
    1e308,
    -1e308,
    2 ** 53,
    0.1 + 0.2,
    [],
    {},
    [[[[[[[[[[[[]]]]]]]]]]]],
    { __proto__: null, constructor: { prototype: 1 } },
    Array.from({ length: 2_000 }, (_, at) => at),
  ),
  fc.string({ unit: "binary", maxLength: 64 }),
  fc.double(),
  fc.jsonValue({ maxDepth: 3 }),
);

/** Values of a schema, of which some have junk in the place of a part. */
export function valuesOf(schema: Schema, schemas: Schemas, depth = 0): fc.Arbitrary<unknown> {
  const proper = properOf(schema, schemas, depth);
  return fc.oneof({ weight: 12, arbitrary: proper }, { weight: 1, arbitrary: JUNK });
}

function properOf(schema: Schema, schemas: Schemas, depth: number): fc.Arbitrary<unknown> {
  const { $ref, enum: all, anyOf, oneOf, allOf, type } = schema;
  if ($ref) {
    const named = schemas[$ref.slice($ref.lastIndexOf("/") + 1)] ?? {};
    return depth > MAX_DEPTH ? fc.constant({}) : properOf(named, schemas, depth + 1);
  }
  if ("const" in schema) return fc.constant(schema.const);
  if (all) return fc.constantFrom(...all);
  const choices = anyOf ?? oneOf;
  if (choices) return fc.oneof(...choices.map((each) => properOf(each, schemas, depth + 1)));
  if (allOf) {
    const parts = allOf.map((each) => properOf(each, schemas, depth + 1));
    return fc.tuple(...parts).map((each) => Object.assign({}, ...each));
  }
  if (typeof type === "object") {
    return fc.oneof(...type.map((each) => properOf({ ...schema, type: each }, schemas, depth)));
  }
  return ofType(schema, schemas, depth);
}

function ofType(schema: Schema, schemas: Schemas, depth: number): fc.Arbitrary<unknown> {
  const { type, minimum = 0, maximum = minimum + 100, items = {}, minItems = 0 } = schema;
  switch (type) {
    case "object":
      return objectsOf(schema, schemas, depth);
    case "array": {
      if (depth > MAX_DEPTH) return fc.constant([]);
      const each = valuesOf(items, schemas, depth + 1);
      return fc.array(each, { minLength: minItems, maxLength: minItems + MAX_ITEMS });
    }
    case "integer":
      return fc.integer({ min: Math.max(minimum, -1e6), max: Math.min(maximum, 1e6) });
    case "number":
      return fc.double({ min: minimum, max: maximum, noNaN: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "string":
      return textsOf(schema);
    default:
      return JUNK;
  }
}

function textsOf({ pattern, format, default: fallback }: Schema): fc.Arbitrary<string> {
  if (format === "date-time")
    return fc.constantFrom("2026-11-26T00:00:00.000Z", "2026-02-30T00:00Z");
  if (format === "date") return fc.constantFrom("2026-11-26", "2026-02-31");
  if (format === "uri")
    return fc.constantFrom("https://a.example/x", "builtin://tiny", "file:///x");
  const short = fc.string({ minLength: 1, maxLength: 24 });
  const names = fc.constantFrom("default", "abc", "a.b-c_1", String(fallback ?? "x"));
  if (pattern === undefined) return fc.oneof(short, names);
  try {
    return fc.oneof(names, fc.stringMatching(new RegExp(pattern), { size: "-1" }));
  } catch {
    return fc.oneof(short, names); // It has what fast-check cannot draw, as look-behind.
  }
}

function objectsOf(
  { properties = {}, required = [], additionalProperties }: Schema,
  schemas: Schemas,
  depth: number,
): fc.Arbitrary<unknown> {
  if (depth > MAX_DEPTH) return fc.constant({});
  const members = Object.entries(properties).map(([name, each]) => [
    name,
    valuesOf(each, schemas, depth + 1),
  ]);
  const known = fc.record(Object.fromEntries(members) as Record<string, fc.Arbitrary<unknown>>, {
    requiredKeys: required.filter((name) => name in properties),
  });
  if (additionalProperties === false || additionalProperties === undefined) return known;
  const value = typeof additionalProperties === "object" ? additionalProperties : {};
  const name = fc.oneof(fc.string({ minLength: 1, maxLength: 12 }), fc.constantFrom("A", "b_1"));
  const more = fc.dictionary(name, valuesOf(value, schemas, depth + 1), { maxKeys: MAX_ITEMS });
  return fc.tuple(known, more).map(([own, others]) => ({ ...others, ...(own as object) }));
}
