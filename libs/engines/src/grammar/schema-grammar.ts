import { FORMATS } from "./formats.ts";
import { ANY_CHARACTER, JsonTexts, SPACE } from "./json-texts.ts";
import { multiplesOf } from "./multiple-text.ts";
import { numberPattern } from "./number-text.ts";
import { GrammarBuilder, type GrammarProgram, GrammarTooLarge } from "./program.ts";
import {
  both,
  isEmpty,
  matchingTexts,
  type TextSet,
  textsWith,
  toBytes,
  UnsupportedPattern,
} from "./regular-text.ts";
import { SchemaFault, under } from "./schema-fault.ts";
import { SchemaReader } from "./schema-reader.ts";
import {
  type JsonType,
  keywordsOf,
  type Located,
  openShape,
  type SchemaShape,
} from "./schema-shape.ts";

const ALL_TYPES: readonly JsonType[] = ["object", "array", "string", "number", "boolean", "null"];
const ANYTHING: Located = { schema: true, pointer: "" };

/** The grammar of the JSON texts that are valid for a schema. Throws a SchemaFault. */
export function compileSchema(schema: unknown): GrammarProgram {
  const builder = new GrammarBuilder();
  const root = new SchemaGrammar(builder, schema).root();
  return builder.build(root);
}

/**
 * Turns schemas (JSON Schema 2020-12, and what OpenAPI writes) into nodes of a grammar. Every text of
 * the grammar is valid; of the valid ones those are left out that no model needs:
 * - Members come in the order of `properties`. There are others only where `additionalProperties` says so.
 * - Elements behind `prefixItems` come only where `items` or `minItems` says so.
 * - Characters have one spelling; white space is a space or a new line with its indentation.
 */
export class SchemaGrammar {
  readonly #builder: GrammarBuilder;
  readonly #texts: JsonTexts;
  readonly #reader: SchemaReader;
  /** The nodes of schemas that others refer to, by their pointers. */
  readonly #referred = new Map<string, number>();
  #anything: number | undefined;

  constructor(builder: GrammarBuilder, document: unknown) {
    this.#builder = builder;
    this.#texts = new JsonTexts(builder);
    this.#reader = new SchemaReader(document);
  }

  /** The node of the whole document. Throws a SchemaFault where no text is valid. */
  root(): number {
    return this.#productive(this.#target("#", ""));
  }

  /** The same of those texts that are objects. */
  objectRoot(): number {
    const whole = this.#reader.find("#", "");
    const isObject: Located = { schema: { type: "object" }, pointer: "" };
    return this.#productive(this.#all([isObject, whole]));
  }

  #productive(root: number): number {
    const { heights } = this.#builder.build(root);
    if (heights[root] === Number.POSITIVE_INFINITY) {
      throw new SchemaFault("", "no value is valid: it contradicts itself or never ends");
    }
    return root;
  }

  #value(located: Located): number {
    if (located.schema === false) return this.#builder.never();
    const keywords = keywordsOf(located);
    const combining = this.#reader.onlyKeyword(keywords);
    if (combining === "$ref") return this.#target(String(keywords["$ref"]), located.pointer);
    if (combining === "anyOf" || combining === "oneOf") {
      const options = this.#reader.alternatives(located, combining);
      return this.#builder.choice(options.map((option) => this.#value(option)));
    }
    return this.#faultsAt(located.pointer, () =>
      this.#builder.choice(this.#reader.shapesOf(located).map((shape) => this.#ofShape(shape))),
    );
  }

  /** The node of what a reference names; it may contain itself. */
  #target(reference: string, pointer: string): number {
    const target = this.#reader.find(reference, pointer);
    const known = this.#referred.get(target.pointer);
    if (known !== undefined) return known;
    const node = this.#builder.reserve();
    this.#referred.set(target.pointer, node);
    this.#builder.define(node, { kind: "choice", options: [this.#value(target)] });
    return node;
  }

  /** What all of these say. */
  #all(schemas: readonly Located[]): number {
    const [first, ...others] = schemas;
    if (first === undefined) return this.#any();
    if (others.length === 0) return this.#value(first);
    if (schemas.some(({ schema }) => schema === false)) return this.#builder.never();
    const shapes = this.#reader.shapesOfAll(schemas);
    return this.#builder.choice(shapes.map((shape) => this.#ofShape(shape)));
  }

  #any(): number {
    if (this.#anything !== undefined) return this.#anything;
    const node = this.#builder.reserve();
    this.#anything = node;
    const shape = { ...openShape(""), additional: [ANYTHING], items: [ANYTHING] };
    const options = ALL_TYPES.map((type) => this.#ofType(type, shape));
    this.#builder.define(node, { kind: "choice", options });
    return node;
  }

  #ofShape(shape: SchemaShape): number {
    if (shape.values !== undefined) return this.#ofValues(shape.values, shape);
    const types = shape.types === undefined ? ALL_TYPES : [...shape.types];
    if (shape.types === undefined && this.#reader.isOpen(shape)) return this.#any();
    return this.#builder.choice(types.map((type) => this.#ofType(type, shape)));
  }

  #ofValues(values: readonly unknown[], shape: SchemaShape): number {
    const valid = values.filter((value) => this.#reader.allows(shape, value));
    if (valid.length === 0) return this.#builder.never();
    return this.#texts.anyOf(valid.map((value) => JSON.stringify(value)));
  }

  #ofType(name: JsonType, shape: SchemaShape): number {
    switch (name) {
      case "null":
        return this.#texts.literal("null");
      case "boolean":
        return this.#texts.anyOf(["true", "false"]);
      case "integer":
      case "number":
        return this.#number(shape, name === "integer");
      case "string":
        return this.#string(shape);
      case "object":
        return this.#object(shape);
      case "array":
        return this.#array(shape);
      default:
        name satisfies never;
        throw new TypeError("a type is not known");
    }
  }

  #number(shape: SchemaShape, isInteger: boolean): number {
    const pattern = numberPattern({ ...shape, isInteger });
    if (pattern === undefined) return this.#builder.never();
    if (shape.multiples.length > 0) return this.#multiple(shape.multiples, pattern);
    const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = shape;
    const isFree = [minimum, exclusiveMinimum, maximum, exclusiveMaximum].every(
      (b) => b === undefined,
    );
    return isFree ? this.#texts.common(pattern) : this.#texts.pattern(pattern);
  }

  #multiple(steps: readonly Located[], pattern: string): number {
    const texts = steps.reduce((set, { schema, pointer }) => {
      const multiples = multiplesOf(schema as number);
      if (multiples !== undefined) return this.#faultsAt(pointer, () => both(set, multiples));
      throw new SchemaFault(pointer, `multiples of ${schema} are not supported: use fewer digits`);
    }, matchingTexts(pattern));
    return isEmpty(texts)
      ? this.#builder.never()
      : this.#faultsAt(steps[0]?.pointer ?? "", () => this.#builder.text(toBytes(texts, "plain")));
  }

  #string(shape: SchemaShape): number {
    const { minLength, maxLength } = shape;
    if (minLength > maxLength) return this.#builder.never();
    const texts = this.#restricted(shape);
    if (texts !== undefined) {
      return isEmpty(texts) ? this.#builder.never() : this.#texts.string(texts);
    }
    return this.#texts.characters(minLength, maxLength);
  }

  /** The texts that all patterns and formats allow, of the right length; undefined without any. */
  #restricted({ patterns, formats, minLength, maxLength }: SchemaShape): TextSet | undefined {
    const sets = [
      ...patterns.map(({ schema, pointer }) =>
        this.#faultsAt(pointer, () => textsWith(schema as string)),
      ),
      ...formats.map(({ schema }) => matchingTexts(FORMATS.get(schema as string) as string)),
    ];
    if (sets.length === 0) return undefined;
    if (minLength > 0 || maxLength < Number.POSITIVE_INFINITY) {
      const most = maxLength === Number.POSITIVE_INFINITY ? "" : maxLength;
      const pointer = patterns[0]?.pointer ?? formats[0]?.pointer ?? "";
      sets.push(
        this.#faultsAt(pointer, () => matchingTexts(`${ANY_CHARACTER}{${minLength},${most}}`)),
      );
    }
    return sets.reduce((all, set) => both(all, set));
  }

  /** What goes wrong is said of this place in the schema. */
  #faultsAt<Result>(pointer: string, make: () => Result): Result {
    try {
      return make();
    } catch (error) {
      if (error instanceof UnsupportedPattern) {
        throw new SchemaFault(pointer, `the pattern is not supported: ${error.message}`);
      }
      if (error instanceof GrammarTooLarge) throw new SchemaFault(pointer, error.message);
      throw error;
    }
  }

  #object(shape: SchemaShape): number {
    const members = membersOf(shape);
    const others = this.#otherMembers(shape, members.length);
    const comma = this.#texts.common(`,${SPACE}`);
    const more = (part: number) => this.#builder.sequence([comma, part]);
    let rest = this.#builder.repeat(more(others.node), 0, others.most);
    let first = this.#builder.sequence([
      others.node,
      this.#builder.repeat(more(others.node), 0, Math.max(0, others.most - 1)),
    ]);
    if (others.most === 0) first = this.#builder.never();
    let canBeEmpty = shape.minProperties === 0;
    for (const { name, schemas, isRequired } of members.toReversed()) {
      const member = this.#builder.sequence([this.#texts.name(name), this.#all(schemas)]);
      const begun = this.#builder.sequence([member, rest]);
      const gone = this.#builder.sequence([more(member), rest]);
      first = isRequired ? begun : this.#builder.choice([begun, first]);
      rest = isRequired ? gone : this.#builder.choice([gone, rest]);
      canBeEmpty &&= !isRequired;
    }
    return this.#enclosed("{", "}", first, canBeEmpty);
  }

  /** Members that are not named, and at most how many. */
  #otherMembers(shape: SchemaShape, named: number): { node: number; most: number } {
    const { pointer, additional, properties, names, required } = shape;
    const isClosed =
      additional.length === 0 && (properties.size > 0 || (names.length === 0 && required.size > 0));
    if (isClosed || additional.some(({ schema }) => schema === false)) {
      this.#checkCounts(shape, named, 0);
      return { node: this.#builder.never(), most: 0 };
    }
    const most = Math.max(0, shape.maxProperties - named);
    this.#checkCounts(shape, named, most);
    if (names.length > 0 && named > 0) {
      throw new SchemaFault(
        under(pointer, "propertyNames"),
        "propertyNames beside properties is not supported",
      );
    }
    const name =
      names.length === 0
        ? this.#texts.otherName([...properties.keys(), ...required])
        : this.#builder.sequence([
            this.#all([...names, { schema: { type: "string" }, pointer }]),
            this.#texts.common(`:${SPACE}`),
          ]);
    return { node: this.#builder.sequence([name, this.#all(additional)]), most };
  }

  /** Names may come twice, so that only one member more than the required ones can be counted on. */
  #checkCounts(
    { pointer, minProperties, maxProperties, required }: SchemaShape,
    named: number,
    others: number,
  ): void {
    if (maxProperties < named) {
      const reason = `at most ${maxProperties} of ${named} named members is not supported`;
      throw new SchemaFault(under(pointer, "maxProperties"), reason);
    }
    const sure = required.size === 0 && named + others > 0 ? 1 : required.size;
    if (minProperties <= sure) return;
    const reason = `at least ${minProperties} members is not supported where ${required.size} are required`;
    throw new SchemaFault(under(pointer, "minProperties"), reason);
  }

  #array(shape: SchemaShape): number {
    const { minItems, maxItems, items } = shape;
    if (minItems > maxItems) return this.#builder.never();
    const prefix = shape.prefix.slice(0, maxItems);
    const isClosed = prefix.length > 0 && items.length === 0 && minItems <= prefix.length;
    const item = isClosed ? this.#builder.never() : this.#all(items);
    const comma = this.#texts.common(`,${SPACE}`);
    const more = (part: number) => this.#builder.sequence([comma, part]);
    const least = (done: number) => Math.max(0, minItems - done);
    const most = (done: number) => (isClosed ? 0 : maxItems - done);
    if (prefix.length === 0) {
      if (maxItems === 0) return this.#texts.literal("[]");
      const rest = this.#builder.repeat(more(item), least(1), most(1));
      return this.#enclosed("[", "]", this.#builder.sequence([item, rest]), minItems === 0);
    }
    let rest = this.#builder.repeat(more(item), least(prefix.length), most(prefix.length));
    let first = rest;
    prefix.toReversed().forEach((schemas, fromEnd) => {
      const done = prefix.length - fromEnd;
      const element = this.#all(schemas);
      first = this.#builder.sequence([element, rest]);
      const gone = this.#builder.sequence([more(element), rest]);
      rest = done <= minItems ? gone : this.#builder.optional(gone);
    });
    return this.#enclosed("[", "]", first, minItems === 0);
  }

  #enclosed(open: string, close: string, content: number, canBeEmpty: boolean): number {
    const space = this.#texts.common(SPACE);
    const filled = this.#builder.sequence([space, content, space, this.#texts.literal(close)]);
    const rest = canBeEmpty ? this.#builder.choice([this.#texts.literal(close), filled]) : filled;
    return this.#builder.sequence([this.#texts.literal(open), rest], true);
  }
}

interface Member {
  readonly name: string;
  readonly schemas: readonly Located[];
  readonly isRequired: boolean;
}

/** Those that have a schema, and those that are required without one. */
function membersOf({ properties, required, additional }: SchemaShape): Member[] {
  const named = [...properties].map(([name, schemas]) => ({
    name,
    schemas,
    isRequired: required.has(name),
  }));
  const others = [...required].filter((name) => !properties.has(name));
  return [...named, ...others.map((name) => ({ name, schemas: additional, isRequired: true }))];
}
