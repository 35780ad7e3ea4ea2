import { FORMATS } from "./formats.ts";
import { ANY_CHARACTER, JsonTexts, SPACE } from "./json-texts.ts";
import { multiplesOf } from "./multiple-text.ts";
import { numberPattern, spellingsOf } from "./number-text.ts";
import { barrenPath, GrammarBuilder, type GrammarProgram, GrammarTooLarge } from "./program.ts";
import {
  both,
  complementOf,
  hasText,
  isEmpty,
  lacking,
  literalPattern,
  matchingTexts,
  notMatching,
  type TextSet,
  textsWith,
  toBytes,
  UnsupportedPattern,
  words,
} from "./regular-text.ts";
import { SchemaFault, under } from "./schema-fault.ts";
import { SchemaReader } from "./schema-reader.ts";
import {
  isNothing,
  type JsonType,
  keywordsOf,
  type Located,
  membersOf,
  openShape,
  type SchemaShape,
} from "./schema-shape.ts";

const ALL_TYPES: readonly JsonType[] = ["object", "array", "string", "number", "boolean", "null"];
/** What ends the value of a parameter that is an element. */
const ELEMENT_CLOSE = "</parameter>";
const ELEMENT_END = `\n${ELEMENT_CLOSE}\n`;
/** Members that no schema names, as elements. */
const MAX_FREE_ELEMENTS = 64;
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
  /** The nodes of several schemas at once, by the ids of these. */
  readonly #mergedNodes = new Map<string, number>();
  readonly #ids = new Map<unknown, number>();
  /** Where in the document nodes come from. */
  readonly #places = new Map<number, string>();
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

  /**
   * The node of an object's members as elements, `<parameter=NAME>`, in the order of `properties`.
   * The texts of `raw` are as they are; other values are JSON.
   */
  taggedRoot(raw: ReadonlySet<string>): number {
    const whole = this.#reader.find("#", "");
    const isObject: Located = { schema: { type: "object" }, pointer: "" };
    const shapes = this.#reader.shapesOfAll([isObject, whole]);
    return this.#productive(
      this.#builder.choice(shapes.map((shape) => this.#elements(shape, raw))),
    );
  }

  #elements(shape: SchemaShape, raw: ReadonlySet<string>): number {
    if (shape.values !== undefined) {
      throw new SchemaFault(shape.pointer, "enum or const of whole arguments is not supported");
    }
    const members = membersOf(shape);
    const parts = members.map(({ name, schemas, isRequired }) => {
      if (/[>\n]/.test(name)) {
        const place = schemas[0]?.pointer ?? shape.pointer;
        throw new SchemaFault(place, "a parameter's name with > or a line break is not supported");
      }
      const value = raw.has(name) ? this.#rawText(schemas) : this.#all(schemas);
      const element = this.#builder.sequence([
        this.#texts.literal(`<parameter=${name}>\n`),
        value,
        this.#texts.literal(ELEMENT_END),
      ]);
      return isRequired ? element : this.#builder.optional(element);
    });
    const isOpen = members.length === 0 && !shape.additional.some(isNothing);
    const others = isOpen ? Number.POSITIVE_INFINITY : 0;
    this.#checkCounts(shape, members.length, others);
    if (!isOpen) return this.#builder.sequence(parts);
    const other = this.#builder.sequence([
      this.#texts.common("<parameter=[a-zA-Z0-9_.-]{1,64}>\\n"),
      this.#all(shape.additional),
      this.#texts.literal(ELEMENT_END),
    ]);
    const most = Math.min(shape.maxProperties, MAX_FREE_ELEMENTS);
    return this.#builder.repeat(other, Math.min(1, shape.minProperties), most);
  }

  /** Texts without quotes, which do not contain what ends them. */
  #rawText(schemas: readonly Located[]): number {
    const ends = () => lacking(literalPattern(ELEMENT_CLOSE));
    const options = this.#reader.shapesOfAll(schemas).map((shape) => {
      const { minLength, maxLength, pointer } = shape;
      if (shape.values !== undefined) {
        const valid = this.#validOf(shape.values, shape);
        const texts = valid.map(String).filter((text) => !text.includes(ELEMENT_CLOSE));
        return texts.length === 0 ? this.#builder.never() : this.#texts.anyOf(texts);
      }
      if (shape.types !== undefined && !shape.types.has("string")) return this.#builder.never();
      if (minLength > maxLength) return this.#builder.never();
      return this.#faultsAt(pointer, () => {
        const isFree = minLength === 0 && maxLength === Number.POSITIVE_INFINITY;
        const most = maxLength === Number.POSITIVE_INFINITY ? "" : maxLength;
        const counted = isFree ? undefined : `${ANY_CHARACTER}{${minLength},${most}}`;
        const own = this.#restricted(shape) ?? (counted && matchingTexts(counted));
        const texts = own ? both(own, ends()) : ends();
        return isEmpty(texts) ? this.#builder.never() : this.#builder.text(toBytes(texts, "plain"));
      });
    });
    return this.#builder.choice(options);
  }

  #productive(root: number): number {
    const path = barrenPath(this.#builder.build(root));
    if (path.length === 0) return root;
    const place = path.findLast((node) => this.#places.has(node));
    const pointer = place === undefined ? "" : (this.#places.get(place) as string);
    throw new SchemaFault(pointer, "no value is valid: it contradicts itself or never ends");
  }

  #value(located: Located): number {
    const node = this.#valueOf(located);
    if (!this.#places.has(node)) this.#places.set(node, located.pointer);
    return node;
  }

  #valueOf(located: Located): number {
    if (isNothing(located)) return this.#builder.never();
    if (located.isNegated) return this.#merged([located]);
    const keywords = keywordsOf(located);
    const combining = this.#reader.onlyKeyword(keywords);
    if (combining === "$ref") return this.#target(String(keywords["$ref"]), located.pointer);
    const isChoice = combining === "oneOf" && this.#reader.areExclusive(located);
    if (combining === "anyOf" || (combining === "oneOf" && isChoice)) {
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
    return schemas.some(isNothing) ? this.#builder.never() : this.#merged(schemas);
  }

  /** The node of the shapes of all of these, which may come again within it. */
  #merged(schemas: readonly Located[]): number {
    const key = schemas.map((located) => this.#idOf(located)).join();
    const known = this.#mergedNodes.get(key);
    if (known !== undefined) return known;
    const node = this.#builder.reserve();
    this.#mergedNodes.set(key, node);
    const options = this.#faultsAt(schemas[0]?.pointer ?? "", () =>
      this.#reader.shapesOfAll(schemas).map((shape) => this.#ofShape(shape)),
    );
    this.#builder.define(node, { kind: "choice", options });
    return node;
  }

  #idOf({ schema, isNegated }: Located): string {
    const id = this.#ids.get(schema) ?? this.#ids.size;
    this.#ids.set(schema, id);
    return `${isNegated ? "!" : ""}${id}`;
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
    const valid = this.#validOf(values, shape);
    if (valid.length === 0) return this.#builder.never();
    return this.#texts.anyOf(valid.map((value) => JSON.stringify(value)));
  }

  #validOf(values: readonly unknown[], shape: SchemaShape): readonly unknown[] {
    const allowed = values.filter((value) => this.#reader.allows(shape, value));
    if (!allowed.some((value) => typeof value === "string")) return allowed;
    const texts = this.#restricted(shape);
    if (texts === undefined) return allowed;
    return allowed.filter((value) => typeof value !== "string" || hasText(texts, value));
  }

  #ofType(name: JsonType, shape: SchemaShape): number {
    switch (name) {
      case "null":
        return isExcluded(shape, "null") ? this.#builder.never() : this.#texts.literal("null");
      case "boolean":
        return this.#texts.anyOf(["true", "false"].filter((text) => !isExcluded(shape, text)));
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
    const excluded = shape.excluded.filter(({ schema }) => typeof schema === "number");
    if (shape.isFractional || excluded.length > 0) {
      return this.#numberWithout(shape, excluded, pattern);
    }
    if (shape.multiples.length > 0) return this.#multiple(shape.multiples, pattern);
    const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = shape;
    const isFree = [minimum, exclusiveMinimum, maximum, exclusiveMaximum].every(
      (b) => b === undefined,
    );
    return isFree ? this.#texts.common(pattern) : this.#texts.pattern(pattern);
  }

  /** Numbers without the excluded ones, with so few digits that no two texts are one number. */
  #numberWithout(
    { isFractional, multiples }: SchemaShape,
    excluded: readonly Located[],
    pattern: string,
  ): number {
    const place = excluded[0]?.pointer ?? multiples[0]?.pointer ?? "";
    if (multiples.length > 0) {
      throw new SchemaFault(place, "multipleOf beside not is not supported");
    }
    const spelled = excluded.map(({ schema }) => spellingsOf(schema as number));
    return this.#faultsAt(place, () => {
      const sets = [
        matchingTexts(pattern),
        matchingTexts(DISTINCT_NUMBER),
        ...(isFractional ? [matchingTexts(FRACTIONAL)] : []),
        ...(spelled.length > 0 ? [notMatching(spelled.join("|"))] : []),
      ];
      const texts = sets.reduce((all, set) => both(all, set));
      return isEmpty(texts) ? this.#builder.never() : this.#builder.text(toBytes(texts, "plain"));
    });
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
  #restricted(shape: SchemaShape): TextSet | undefined {
    const { patterns, formats, lackedPatterns, minLength, maxLength } = shape;
    const excluded = shape.excluded.filter(({ schema }) => typeof schema === "string");
    const sets = [
      ...lackedPatterns.map(({ schema, pointer }) =>
        this.#faultsAt(pointer, () => complementOf(textsWith(schema as string))),
      ),
      ...(excluded.length > 0
        ? [complementOf(words(excluded.map(({ schema }) => schema as string)))]
        : []),
      ...patterns.map(({ schema, pointer }) =>
        this.#faultsAt(pointer, () => textsWith(schema as string)),
      ),
      ...formats.map(({ schema }) => matchingTexts(FORMATS.get(schema as string) as string)),
    ];
    if (sets.length === 0) return undefined;
    if (minLength > 0 || maxLength < Number.POSITIVE_INFINITY) {
      const most = maxLength === Number.POSITIVE_INFINITY ? "" : maxLength;
      const pointer =
        (patterns[0] ?? formats[0] ?? lackedPatterns[0] ?? excluded[0])?.pointer ?? "";
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
    refuseExcluded(shape, (value) => !Array.isArray(value));
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
    refuseExcluded(shape, Array.isArray);
    if (minItems > maxItems) return this.#builder.never();
    const prefix = shape.prefix.slice(0, maxItems);
    const isClosed = prefix.length > 0 && items.length === 0 && minItems <= prefix.length;
    const item = isClosed ? this.#builder.never() : this.#all(items);
    const comma = this.#texts.common(`,${SPACE}`);
    const more = (part: number) => this.#builder.sequence([comma, part]);
    const least = (done: number) => Math.max(0, minItems - done);
    const most = (done: number) => (isClosed ? 0 : maxItems - done);
    const others = (done: number) =>
      this.#builder.repeat(more(item), least(done), most(done), true);
    if (prefix.length === 0) {
      if (maxItems === 0) return this.#texts.literal("[]");
      const content = this.#builder.sequence([item, others(1)]);
      return this.#enclosed("[", "]", content, minItems === 0);
    }
    let rest = others(prefix.length);
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

/** A number in at most 15 digits: two such texts of different values are different numbers. */
const DISTINCT_NUMBER = "-?[\\d.]{1,16}";
const FRACTIONAL = "-?\\d+\\.\\d*[1-9]\\d*";

function isExcluded({ excluded }: SchemaShape, text: string): boolean {
  return excluded.some(({ schema }) => JSON.stringify(schema) === text);
}

/** Throws where a value is excluded that is an object or an array of that kind. */
function refuseExcluded({ excluded }: SchemaShape, isOfKind: (value: unknown) => boolean): void {
  const value = excluded.find(
    ({ schema }) => typeof schema === "object" && schema !== null && isOfKind(schema),
  );
  if (value === undefined) return;
  throw new SchemaFault(
    value.pointer,
    "objects and arrays in enum or const within not are not supported",
  );
}
