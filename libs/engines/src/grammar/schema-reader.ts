import { isMultipleOf } from "./multiple-text.ts";
import { keywordViolations, negated } from "./schema-complement.ts";
import { SchemaFault, under } from "./schema-fault.ts";
import { ownShape } from "./schema-keywords.ts";
import {
  areDisjoint,
  bothShapes,
  canonical,
  isNothing,
  type JsonType,
  keywordsOf,
  type Located,
  openShape,
  type SchemaShape,
} from "./schema-shape.ts";

/** Alternatives of one schema, or combinations of several ones' alternatives. */
const MAX_ALTERNATIVES = 1000;

const COMBINING = ["$ref", "anyOf", "oneOf", "allOf"] as const;
/** What says nothing of a value that the grammar must know. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  "title",
  "description",
  "default",
  "examples",
  "example",
  "deprecated",
  "readOnly",
  "writeOnly",
  "$comment",
  "$schema",
  "$id",
  "$anchor",
  "$defs",
  "definitions",
  "strict",
  "nullable",
  "discriminator",
  "contentEncoding",
  "contentMediaType",
]);

/** Reads a document of schemas: follows references and merges what holds at once. */
export class SchemaReader {
  readonly #document: unknown;

  constructor(document: unknown) {
    this.#document = document;
  }

  /** The combining keyword that alone says something of the value. */
  onlyKeyword(keywords: Record<string, unknown>): (typeof COMBINING)[number] | undefined {
    const significant = Object.keys(keywords).filter(
      (name) => !ANNOTATIONS.has(name) && !name.startsWith("x-"),
    );
    return significant.length === 1 ? COMBINING.find((name) => name === significant[0]) : undefined;
  }

  /** What a reference within the document names. */
  find(reference: string, pointer: string): Located {
    const place = under(pointer, "$ref");
    if (reference !== "#" && !reference.startsWith("#/")) {
      throw new SchemaFault(
        place,
        `only references into the same schema (#/...) are supported, not ${JSON.stringify(reference)}`,
      );
    }
    let schema = this.#document;
    for (const part of decoded(reference).split("/").slice(1)) {
      const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
      const holder = Object(schema) as Record<string, unknown>;
      if (!Object.hasOwn(holder, name)) {
        throw new SchemaFault(place, `there is nothing at ${JSON.stringify(reference)}`);
      }
      schema = holder[name];
    }
    return { schema, pointer: decoded(reference).slice(1) };
  }

  /** Whether no value can be valid for two of the alternatives. */
  areExclusive(located: Located): boolean {
    const options = this.alternatives(located, "oneOf");
    return this.#overlap(options, under(located.pointer, "oneOf"), []) === undefined;
  }

  /** The schemas of a keyword that has a list of them. */
  alternatives({ schema, pointer }: Located, keyword: "anyOf" | "oneOf" | "allOf"): Located[] {
    const list = (schema as Record<string, unknown>)[keyword];
    const place = under(pointer, keyword);
    if (!Array.isArray(list) || list.length === 0 || list.length > MAX_ALTERNATIVES) {
      throw new SchemaFault(place, `expected a list of 1 to ${MAX_ALTERNATIVES} schemas`);
    }
    return list.map((option, at) => ({ schema: option, pointer: under(place, at) }));
  }

  /** The shapes of which a valid value has one. */
  shapesOf(located: Located): SchemaShape[] {
    return this.#shapes(located, []);
  }

  /** The same of a value that is valid for all of these. */
  shapesOfAll(schemas: readonly Located[]): SchemaShape[] {
    return schemas.reduce<SchemaShape[]>(
      (shapes, located) => this.#combined(shapes, this.#shapes(located, []), located.pointer),
      [openShape(schemas[0]?.pointer ?? "")],
    );
  }

  /** Whether the shape allows everything. */
  isOpen(shape: SchemaShape): boolean {
    const { pointer: _, ...says } = shape;
    const { pointer: __, ...open } = openShape("");
    return JSON.stringify(flat(says)) === JSON.stringify(flat(open));
  }

  /** Whether a value of `enum` or `const` is one that the rest of the shape allows, but for patterns and formats. */
  allows(shape: SchemaShape, value: unknown): boolean {
    const type = typeOf(value);
    const { types } = shape;
    if (types !== undefined && !types.has(type) && !(type === "integer" && types.has("number")))
      return false;
    const text = canonical(value);
    if (shape.excluded.some(({ schema }) => canonical(schema) === text)) return false;
    if (typeof value === "number") return isWithin(shape, value);
    if (typeof value === "string") return isCounted(shape, "Length", [...value].length);
    if (typeof value !== "object" || value === null) return true;
    const [of, { length }] = Array.isArray(value)
      ? (["Items", value] as const)
      : (["Properties", Object.keys(value)] as const);
    if (!isCounted(shape, of, length)) return false;
    const named = shape.properties.size + shape.required.size + shape.names.length;
    const elements = shape.prefix.length + shape.items.length;
    if (named + shape.additional.length + elements === 0) return true;
    throw new SchemaFault(
      shape.pointer,
      "objects and arrays in enum or const beside keywords for them are not supported",
    );
  }

  /** `chain` has the references that led here: a schema that is part of itself adds nothing. */
  #shapes(located: Located, chain: readonly string[], isExact = false): SchemaShape[] {
    if (isNothing(located)) return [];
    if (located.isNegated) return this.#complement(located, chain);
    const keywords = keywordsOf(located);
    const { pointer } = located;
    const parts = [[ownShape(keywords, pointer, isExact)]];
    const read = (part: Located, links = chain) => this.#shapes(part, links, isExact);
    if (keywords["$ref"] !== undefined) {
      const { target, links } = this.#follow(located, chain);
      parts.push(read(target, links));
    }
    if (keywords["allOf"] !== undefined) {
      parts.push(...this.alternatives(located, "allOf").map((part) => read(part)));
    }
    if (keywords["anyOf"] !== undefined) {
      parts.push(this.alternatives(located, "anyOf").flatMap((option) => read(option)));
    }
    if (keywords["oneOf"] !== undefined) parts.push(this.#oneOf(located, chain, isExact));
    if (keywords["not"] !== undefined) parts.push(read(negated(memberOf(located, "not"))));
    if (keywords["if"] !== undefined) parts.push(this.#conditional(located, read));
    const shapes = parts.reduce((some, part) => this.#combined(some, part, pointer));
    const isPartial = "unevaluatedProperties" in keywords || "unevaluatedItems" in keywords;
    return isPartial ? withUnevaluated(shapes, located) : shapes;
  }

  #follow(located: Located, chain: readonly string[]) {
    const { pointer } = located;
    const target = this.find(String(keywordsOf(located)["$ref"]), pointer);
    if (!chain.includes(target.pointer)) return { target, links: [...chain, target.pointer] };
    throw new SchemaFault(
      under(pointer, "$ref"),
      "it refers to itself beside other keywords, which is not supported",
    );
  }

  /** The shapes of values that are not valid. */
  #complement(located: Located, chain: readonly string[]): SchemaShape[] {
    const { schema, pointer } = located;
    if (schema === false) return [openShape(pointer)];
    const keywords = keywordsOf({ schema, pointer });
    const shapes = keywordViolations(keywords, pointer);
    const wrong = (part: Located, links = chain) => this.#complement(part, links);
    if (keywords["$ref"] !== undefined) {
      const { target, links } = this.#follow({ schema, pointer }, chain);
      shapes.push(...wrong(target, links));
    }
    if (keywords["allOf"] !== undefined) {
      shapes.push(...this.alternatives(located, "allOf").flatMap((part) => wrong(part)));
    }
    for (const keyword of ["anyOf", "oneOf"] as const) {
      if (keywords[keyword] === undefined) continue;
      const options = this.alternatives(located, keyword);
      if (keyword === "oneOf") this.#requireExclusive(options, under(pointer, keyword), chain);
      const all = options.map((option) => wrong(option));
      shapes.push(...all.reduce((some, more) => this.#combined(some, more, pointer)));
    }
    if (keywords["not"] !== undefined) {
      shapes.push(...this.#shapes(memberOf(located, "not"), chain, true));
    }
    if (keywords["if"] !== undefined) {
      const { condition, consequence, otherwise } = conditionalOf(located);
      const isMet = this.#shapes(condition, chain, true);
      shapes.push(...this.#combined(isMet, consequence ? wrong(consequence) : [], pointer));
      shapes.push(...this.#combined(wrong(condition), otherwise ? wrong(otherwise) : [], pointer));
    }
    return shapes;
  }

  /** One alternative is valid, and no other. */
  #oneOf(located: Located, chain: readonly string[], isExact: boolean): SchemaShape[] {
    const options = this.alternatives(located, "oneOf");
    const place = under(located.pointer, "oneOf");
    const shapes = options.map((option) => this.#shapes(option, chain, isExact));
    if (this.#overlap(options, place, chain) === undefined) return shapes.flat();
    return shapes.flatMap((own, at) => {
      const others = options.filter((_, other) => other !== at);
      return others.reduce((some, other) => {
        const outside = this.#without(other, chain, under(place, at));
        return this.#combined(some, outside, located.pointer).filter(
          ({ types }) => types?.size !== 0,
        );
      }, own);
    });
  }

  #without(option: Located, chain: readonly string[], pointer: string): SchemaShape[] {
    try {
      return this.#complement(option, chain);
    } catch (error) {
      if (!(error instanceof SchemaFault)) throw error;
      throw new SchemaFault(pointer, `${OVERLAPS} (at ${error.pointer}, ${error.message})`);
    }
  }

  #conditional(located: Located, read: (part: Located) => SchemaShape[]): SchemaShape[] {
    const { condition, consequence, otherwise } = conditionalOf(located);
    const { pointer } = located;
    const met = read(condition);
    const unmet = read(negated(condition));
    return [
      ...(consequence ? this.#combined(met, read(consequence), pointer) : met),
      ...(otherwise ? this.#combined(unmet, read(otherwise), pointer) : unmet),
    ];
  }

  #combined(
    left: readonly SchemaShape[],
    right: readonly SchemaShape[],
    pointer: string,
  ): SchemaShape[] {
    if (left.length * right.length > MAX_ALTERNATIVES) {
      throw new SchemaFault(
        pointer,
        `its parts combine to more than ${MAX_ALTERNATIVES} alternatives`,
      );
    }
    return left.flatMap((a) => right.map((b) => bothShapes(a, b)));
  }

  #requireExclusive(options: readonly Located[], pointer: string, chain: readonly string[]): void {
    const one = this.#overlap(options, pointer, chain);
    if (one !== undefined) throw new SchemaFault(under(pointer, one), OVERLAPS);
  }

  /** The first alternative that a later one may share a value with. */
  #overlap(
    options: readonly Located[],
    pointer: string,
    chain: readonly string[],
  ): number | undefined {
    if (options.length === 1) return undefined;
    const shapes = options.map((option) => this.#shapes(option, chain, true));
    // Compared in pairs: a few dozen alternatives are many.
    if (shapes.reduce((sum, { length }) => sum + length, 0) > MAX_PAIRED) {
      throw new SchemaFault(pointer, `oneOf has more than ${MAX_PAIRED} alternatives; use anyOf`);
    }
    const overlaps = (ofOne: readonly SchemaShape[], ofOther: readonly SchemaShape[]) =>
      !ofOne.every((a) => ofOther.every((b) => areDisjoint(a, b)));
    const found = shapes.findIndex((ofOne, one) =>
      shapes.slice(one + 1).some((ofOther) => overlaps(ofOne, ofOther)),
    );
    return found < 0 ? undefined : found;
  }
}

/** What holds of members and elements of which nothing else in the schema speaks. */
function withUnevaluated(shapes: SchemaShape[], located: Located): SchemaShape[] {
  const keywords = keywordsOf(located);
  const [ofMembers, ofElements] = (["unevaluatedProperties", "unevaluatedItems"] as const).map(
    (name) => {
      if (keywords[name] === undefined || keywords[name] === true) return [];
      if (keywords["not"] === undefined) return [memberOf(located, name)];
      throw new SchemaFault(under(located.pointer, name), `${name} beside not is not supported`);
    },
  ) as [Located[], Located[]];
  // What a value must not be says nothing of its parts.
  const also = (schemas: readonly Located[], rest: Located[]) =>
    schemas.every(({ isNegated }) => isNegated) ? [...schemas, ...rest] : schemas;
  return shapes.map((shape) => ({
    ...shape,
    properties: new Map([...shape.properties].map(([name, all]) => [name, also(all, ofMembers)])),
    additional: shape.additional.length > 0 ? shape.additional : ofMembers,
    prefix: shape.prefix.map((all) => also(all, ofElements)),
    items: shape.items.length > 0 ? shape.items : ofElements,
  }));
}

const OVERLAPS =
  "a value may be valid for this and a later alternative of oneOf; use anyOf, or distinguish them by type or by a required const";

interface Conditional {
  readonly condition: Located;
  readonly consequence: Located | undefined;
  readonly otherwise: Located | undefined;
}

function conditionalOf(located: Located): Conditional {
  const keywords = Object(located.schema) as Record<string, unknown>;
  const part = (name: string) => (name in keywords ? memberOf(located, name) : undefined);
  return { condition: memberOf(located, "if"), consequence: part("then"), otherwise: part("else") };
}

/** The schema that is a keyword's value. */
function memberOf({ schema, pointer }: Located, keyword: string): Located {
  const keywords = schema as Record<string, unknown>;
  return { schema: keywords[keyword], pointer: under(pointer, keyword) };
}

/** Alternatives of `oneOf` that are compared with one another. */
const MAX_PAIRED = 200;

function decoded(reference: string): string {
  try {
    return decodeURIComponent(reference);
  } catch {
    return reference;
  }
}

/** With what JSON would leave out. */
function flat(shape: object): unknown[] {
  return Object.values(shape).map((value) => {
    if (value instanceof Map || value instanceof Set) return value.size;
    return value === undefined ? "none" : String(value);
  });
}

function typeOf(value: unknown): JsonType {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value as JsonType;
}

function isWithin(shape: SchemaShape, value: number): boolean {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum, multiples } = shape;
  return (
    !(shape.isFractional && Number.isInteger(value)) &&
    multiples.every(({ schema }) => isMultipleOf(value, schema as number)) &&
    value >= (minimum ?? Number.NEGATIVE_INFINITY) &&
    value <= (maximum ?? Number.POSITIVE_INFINITY) &&
    (exclusiveMinimum === undefined || value > exclusiveMinimum) &&
    (exclusiveMaximum === undefined || value < exclusiveMaximum)
  );
}

function isCounted(
  shape: SchemaShape,
  of: "Length" | "Items" | "Properties",
  count: number,
): boolean {
  return count >= shape[`min${of}`] && count <= shape[`max${of}`];
}
