import { isJsonObject } from "@heddle/base/json-object";
import { SchemaFault } from "./schema-fault.ts";

/** The types of JSON; an integer is a number too. */
export type JsonType = "null" | "boolean" | "integer" | "number" | "string" | "object" | "array";

/** A schema within a document: a boolean or an object, and its place. */
export interface Located {
  readonly schema: unknown;
  readonly pointer: string;
  /** What is meant are the values that are not valid for it. */
  readonly isNegated?: boolean | undefined;
}

/** What one schema says, with what it refers to merged in: all of it holds of a value. */
export interface SchemaShape {
  readonly pointer: string;
  readonly types: ReadonlySet<JsonType> | undefined;
  /** The values of `enum` and `const`. */
  readonly values: readonly unknown[] | undefined;
  /** Values that it is not. */
  readonly excluded: readonly Located[];
  /** The numbers are fractional: none is whole. */
  readonly isFractional: boolean;
  readonly minimum: number | undefined;
  readonly exclusiveMinimum: number | undefined;
  readonly maximum: number | undefined;
  readonly exclusiveMaximum: number | undefined;
  /** A number is a multiple of each; `schema` is a positive number. */
  readonly multiples: readonly Located[];
  readonly minLength: number;
  readonly maxLength: number;
  readonly patterns: readonly Located[];
  readonly formats: readonly Located[];
  /** Patterns that a text does not have. */
  readonly lackedPatterns: readonly Located[];
  /** All schemas of a member hold of it. */
  readonly properties: ReadonlyMap<string, readonly Located[]>;
  readonly required: ReadonlySet<string>;
  readonly additional: readonly Located[];
  readonly names: readonly Located[];
  readonly minProperties: number;
  readonly maxProperties: number;
  readonly prefix: readonly (readonly Located[])[];
  /** The schemas of the elements behind the prefix. */
  readonly items: readonly Located[];
  readonly minItems: number;
  readonly maxItems: number;
}

/** What a schema that allows everything says. */
export function openShape(pointer: string): SchemaShape {
  return {
    pointer,
    types: undefined,
    values: undefined,
    excluded: [],
    isFractional: false,
    minimum: undefined,
    exclusiveMinimum: undefined,
    maximum: undefined,
    exclusiveMaximum: undefined,
    multiples: [],
    minLength: 0,
    maxLength: Number.POSITIVE_INFINITY,
    patterns: [],
    formats: [],
    lackedPatterns: [],
    properties: new Map(),
    required: new Set(),
    additional: [],
    names: [],
    minProperties: 0,
    maxProperties: Number.POSITIVE_INFINITY,
    prefix: [],
    items: [],
    minItems: 0,
    maxItems: Number.POSITIVE_INFINITY,
  };
}

/** What both say together. */
export function bothShapes(a: SchemaShape, b: SchemaShape): SchemaShape {
  return {
    pointer: a.pointer,
    types: bothTypes(a.types, b.types),
    values: bothValues(a.values, b.values),
    excluded: [...a.excluded, ...b.excluded],
    isFractional: a.isFractional || b.isFractional,
    minimum: larger(a.minimum, b.minimum),
    exclusiveMinimum: larger(a.exclusiveMinimum, b.exclusiveMinimum),
    maximum: smaller(a.maximum, b.maximum),
    exclusiveMaximum: smaller(a.exclusiveMaximum, b.exclusiveMaximum),
    multiples: [...a.multiples, ...b.multiples],
    minLength: Math.max(a.minLength, b.minLength),
    maxLength: Math.min(a.maxLength, b.maxLength),
    patterns: [...a.patterns, ...b.patterns],
    formats: [...a.formats, ...b.formats],
    lackedPatterns: [...a.lackedPatterns, ...b.lackedPatterns],
    properties: bothProperties(a, b),
    required: new Set([...a.required, ...b.required]),
    additional: [...a.additional, ...b.additional],
    names: [...a.names, ...b.names],
    minProperties: Math.max(a.minProperties, b.minProperties),
    maxProperties: Math.min(a.maxProperties, b.maxProperties),
    prefix: bothPrefixes(a, b),
    items: [...a.items, ...b.items],
    minItems: Math.max(a.minItems, b.minItems),
    maxItems: Math.min(a.maxItems, b.maxItems),
  };
}

function bothTypes(
  a: ReadonlySet<JsonType> | undefined,
  b: ReadonlySet<JsonType> | undefined,
): ReadonlySet<JsonType> | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const types = new Set<JsonType>();
  for (const type of a) {
    if (b.has(type) || (type === "integer" && b.has("number"))) types.add(type);
    else if (type === "number" && b.has("integer")) types.add("integer");
  }
  return types;
}

function bothValues(
  a: readonly unknown[] | undefined,
  b: readonly unknown[] | undefined,
): readonly unknown[] | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const texts = new Set(b.map(canonical));
  return a.filter((value) => texts.has(canonical(value)));
}

/** Equal for equal JSON values, whatever the order of their members. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join(",")}}`;
}

/** A member that one of them does not name is one of its additional ones. */
function bothProperties(a: SchemaShape, b: SchemaShape): ReadonlyMap<string, readonly Located[]> {
  const properties = new Map<string, readonly Located[]>();
  for (const name of new Set([...a.properties.keys(), ...b.properties.keys()])) {
    const ofA = a.properties.get(name) ?? a.additional;
    properties.set(name, [...ofA, ...(b.properties.get(name) ?? b.additional)]);
  }
  return properties;
}

function bothPrefixes(a: SchemaShape, b: SchemaShape): (readonly Located[])[] {
  return Array.from({ length: Math.max(a.prefix.length, b.prefix.length) }, (_, at) => [
    ...(a.prefix[at] ?? a.items),
    ...(b.prefix[at] ?? b.items),
  ]);
}

/** The larger one of two bounds, either of which may be absent. */
export function larger(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

export function smaller(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.min(a, b);
}

/** Whether no value can be of both: their types, or a member that both require, never agree. */
export function areDisjoint(a: SchemaShape, b: SchemaShape): boolean {
  const types = bothTypes(a.types, b.types);
  if (types !== undefined && types.size === 0) return true;
  if (a.values !== undefined && b.values !== undefined) {
    return bothValues(a.values, b.values)?.length === 0;
  }
  return isOfObjects(a) && isOfObjects(b) && haveDisjointMember(a, b);
}

/** A member that a shape names. */
interface Member {
  readonly name: string;
  readonly schemas: readonly Located[];
  readonly isRequired: boolean;
}

/** The members that have a schema, and those that are required without one. */
export function membersOf({ properties, required, additional }: SchemaShape): Member[] {
  const named = [...properties].map(([name, schemas]) => ({
    name,
    schemas,
    isRequired: required.has(name),
  }));
  const others = [...required].filter((name) => !properties.has(name));
  return [...named, ...others.map((name) => ({ name, schemas: additional, isRequired: true }))];
}

function isOfObjects({ types }: SchemaShape): boolean {
  return types?.size === 1 && types.has("object");
}

function haveDisjointMember(a: SchemaShape, b: SchemaShape): boolean {
  return (
    [...a.required].some((name) => {
      if (!b.required.has(name)) return lacks(b, name);
      const [ofA, ofB] = [valuesOf(a.properties.get(name)), valuesOf(b.properties.get(name))];
      return ofA !== undefined && ofB !== undefined && bothValues(ofA, ofB)?.length === 0;
    }) || [...b.required].some((name) => lacks(a, name))
  );
}

/** Whether a shape never has the member. */
function lacks(shape: SchemaShape, name: string): boolean {
  const own = shape.properties.get(name);
  if (own !== undefined) return own.some(isNothing);
  return shape.additional.some(({ schema }) => schema === false);
}

/** Whether no value is meant. */
export function isNothing({ schema, isNegated = false }: Located): boolean {
  return schema === isNegated;
}

function valuesOf(schemas: readonly Located[] | undefined): readonly unknown[] | undefined {
  for (const { schema, isNegated } of schemas ?? []) {
    if (isNegated) continue;
    const { enum: values, const: value } = Object(schema) as Record<string, unknown>;
    if (value !== undefined) return [value];
    if (Array.isArray(values)) return values;
  }
  return undefined;
}

/** Throws where a schema is neither an object nor a boolean. */
export function keywordsOf({ schema, pointer }: Located): Record<string, unknown> {
  if (schema === true) return {};
  if (isJsonObject(schema)) {
    return schema as Record<string, unknown>;
  }
  throw new SchemaFault(pointer, "a schema is an object or a boolean");
}
