import { FORMATS } from "./formats.ts";
import { isMultipleOf } from "./multiple-text.ts";
import { SchemaFault, under } from "./schema-fault.ts";
import { ownShape } from "./schema-keywords.ts";
import {
  areDisjoint,
  bothShapes,
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

  /** The schemas of `anyOf` or `oneOf`; those of `oneOf` must exclude one another. */
  alternatives({ schema, pointer }: Located, keyword: "anyOf" | "oneOf" | "allOf"): Located[] {
    const list = (schema as Record<string, unknown>)[keyword];
    const place = under(pointer, keyword);
    if (!Array.isArray(list) || list.length === 0 || list.length > MAX_ALTERNATIVES) {
      throw new SchemaFault(place, `expected a list of 1 to ${MAX_ALTERNATIVES} schemas`);
    }
    const options = list.map((option, at) => ({ schema: option, pointer: under(place, at) }));
    if (keyword === "oneOf") this.#checkDisjoint(options, place);
    return options;
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

  /** Whether a value of `enum` or `const` is one that the rest of the shape allows. */
  allows(shape: SchemaShape, value: unknown): boolean {
    const type = typeOf(value);
    const { types } = shape;
    if (types !== undefined && !types.has(type) && !(type === "integer" && types.has("number")))
      return false;
    if (typeof value === "number") return isWithin(shape, value);
    if (typeof value === "string") return matches(shape, value);
    if (type !== "object" && type !== "array") return true;
    const isPlain = shape.properties.size + shape.required.size + shape.prefix.length === 0;
    if (isPlain && shape.items.length + shape.additional.length === 0) return true;
    throw new SchemaFault(
      shape.pointer,
      "objects and arrays in enum or const beside keywords for them are not supported",
    );
  }

  /** `chain` has the references that led here: a schema that is part of itself adds nothing. */
  #shapes(located: Located, chain: readonly string[]): SchemaShape[] {
    if (located.schema === false) return [];
    const keywords = keywordsOf(located);
    const { pointer } = located;
    let shapes = [ownShape(keywords, pointer)];
    if (keywords["$ref"] !== undefined) {
      const target = this.find(String(keywords["$ref"]), pointer);
      if (chain.includes(target.pointer)) {
        throw new SchemaFault(
          under(pointer, "$ref"),
          "it refers to itself beside other keywords, which is not supported",
        );
      }
      shapes = this.#combined(shapes, this.#shapes(target, [...chain, target.pointer]), pointer);
    }
    if (keywords["allOf"] !== undefined) {
      for (const part of this.alternatives(located, "allOf")) {
        shapes = this.#combined(shapes, this.#shapes(part, chain), pointer);
      }
    }
    for (const keyword of ["anyOf", "oneOf"] as const) {
      if (keywords[keyword] === undefined) continue;
      const options = this.alternatives(located, keyword).flatMap((option) =>
        this.#shapes(option, chain),
      );
      shapes = this.#combined(shapes, options, pointer);
    }
    return shapes;
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

  #checkDisjoint(options: readonly Located[], pointer: string): void {
    if (options.length === 1) return;
    const shapes = options.map((option) => this.#shapes(option, []));
    // Compared in pairs: a few dozen alternatives are many.
    if (shapes.reduce((sum, { length }) => sum + length, 0) > MAX_PAIRED) {
      throw new SchemaFault(pointer, `oneOf has more than ${MAX_PAIRED} alternatives; use anyOf`);
    }
    shapes.forEach((ofOne, one) => {
      for (const ofOther of shapes.slice(one + 1)) {
        if (ofOne.every((a) => ofOther.every((b) => areDisjoint(a, b)))) continue;
        throw new SchemaFault(
          under(pointer, one),
          "a value may be valid for this and a later alternative of oneOf; use anyOf, or distinguish them by type or by a required const",
        );
      }
    });
  }
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
    multiples.every(({ schema }) => isMultipleOf(value, schema as number)) &&
    value >= (minimum ?? Number.NEGATIVE_INFINITY) &&
    value <= (maximum ?? Number.POSITIVE_INFINITY) &&
    (exclusiveMinimum === undefined || value > exclusiveMinimum) &&
    (exclusiveMaximum === undefined || value < exclusiveMaximum)
  );
}

function matches({ minLength, maxLength, patterns, formats }: SchemaShape, value: string): boolean {
  const { length } = [...value];
  if (length < minLength || length > maxLength) return false;
  return (
    patterns.every(({ schema }) => new RegExp(schema as string, "u").test(value)) &&
    formats.every(({ schema }) =>
      new RegExp(`^(?:${FORMATS.get(schema as string)})$`, "u").test(value),
    )
  );
}
