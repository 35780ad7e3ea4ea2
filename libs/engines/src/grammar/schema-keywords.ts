import { isJsonObject } from "@heddle/base/json-object";
import { ANNOTATING_FORMATS, FORMATS, INTEGER_FORMATS } from "./formats.ts";
import { SchemaFault, under } from "./schema-fault.ts";
import {
  canonical,
  type JsonType,
  type Located,
  larger,
  openShape,
  type SchemaShape,
  smaller,
} from "./schema-shape.ts";

const TYPES: ReadonlySet<JsonType> = new Set([
  ...(["null", "boolean", "integer", "number", "string", "object", "array"] as const),
]);

/** Every type, with no number that is not whole. */
const WHOLE_ONLY = new Set([...TYPES].filter((type) => type !== "number"));

/** Keywords that forbid values and are not supported, unless their value forbids nothing. */
const REFUSED: ReadonlyMap<string, (value: unknown) => boolean> = new Map([
  ["dependentRequired", isEmptyObject],
  ["dependentSchemas", isEmptyObject],
  ["dependencies", isEmptyObject],
  ["patternProperties", isEmptyObject],
  ["contains", () => false],
  ["minContains", () => true],
  ["maxContains", () => true],
  ["uniqueItems", (value) => value === false],
  ["$dynamicRef", () => false],
  ["$recursiveRef", () => false],
  ["contentSchema", () => true],
]);

function isEmptyObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/**
 * What the schema's own keywords say, without those that combine schemas. Throws a SchemaFault.
 * Keywords that speak of one type alone imply it, unless what they say is to be exact.
 */
export function ownShape(
  keywords: Record<string, unknown>,
  pointer: string,
  isExact = false,
): SchemaShape {
  const read = new KeywordReader(keywords, pointer);
  read.refuseUnsupported();
  const isWhole =
    Number.isInteger(keywords["multipleOf"]) || INTEGER_FORMATS.has(keywords["format"]);
  return {
    ...openShape(pointer),
    types: isExact && keywords["type"] === undefined ? undefined : read.types(isWhole),
    values: read.values(),
    ...read.numberBounds(),
    multiples: read.multiples(),
    minLength: read.count("minLength", 0),
    maxLength: read.count("maxLength", Number.POSITIVE_INFINITY),
    patterns: read.texts("pattern"),
    formats: read.format(),
    properties: read.properties(),
    required: new Set(read.names("required")),
    additional: read.schemas("additionalProperties"),
    names: read.schemas("propertyNames"),
    minProperties: read.count("minProperties", 0),
    maxProperties: read.count("maxProperties", Number.POSITIVE_INFINITY),
    ...read.items(),
    minItems: read.count("minItems", 0),
    maxItems: read.count("maxItems", Number.POSITIVE_INFINITY),
  };
}

/** Reads keywords one by one; throws a SchemaFault where a value cannot be. */
export class KeywordReader {
  readonly #keywords: Record<string, unknown>;
  readonly #pointer: string;

  constructor(keywords: Record<string, unknown>, pointer: string) {
    this.#keywords = keywords;
    this.#pointer = pointer;
  }

  refuseUnsupported(): void {
    for (const keyword of Object.keys(this.#keywords)) {
      const forbidsNothing = REFUSED.get(keyword);
      if (forbidsNothing === undefined || forbidsNothing(this.#keywords[keyword])) continue;
      throw this.#fault(keyword, `the keyword ${keyword} is not supported`);
    }
  }

  /** Undefined for all types; keywords that speak of one type alone imply it. */
  types(isWhole: boolean): ReadonlySet<JsonType> | undefined {
    const { type } = this.#keywords;
    if (type === undefined) return this.#impliedTypes() ?? (isWhole ? WHOLE_ONLY : undefined);
    const types = Array.isArray(type) ? type : [type];
    if (types.length === 0 || !types.every((name) => TYPES.has(name))) {
      throw this.#fault("type", `expected one or several of ${[...TYPES].join(", ")}`);
    }
    return new Set(types.map((name) => (isWhole && name === "number" ? "integer" : name)));
  }

  #impliedTypes(): ReadonlySet<JsonType> | undefined {
    const has = (...names: string[]) => names.some((name) => name in this.#keywords);
    if (has("properties", "required", "additionalProperties", "propertyNames")) {
      return new Set(["object"]);
    }
    if (has("items", "prefixItems")) return new Set(["array"]);
    return undefined;
  }

  values(): readonly unknown[] | undefined {
    const { const: value, enum: values } = this.#keywords;
    if (values !== undefined && !Array.isArray(values)) {
      throw this.#fault("enum", "expected a list of values");
    }
    if (!("const" in this.#keywords)) return values;
    const isListed = values?.some((each) => canonical(each) === canonical(value)) ?? true;
    return isListed ? [value] : [];
  }

  numberBounds() {
    const [least, most] = INTEGER_FORMATS.get(this.#keywords["format"]) ?? [];
    return {
      minimum: larger(this.#number("minimum"), least),
      exclusiveMinimum: this.#number("exclusiveMinimum"),
      maximum: smaller(this.#number("maximum"), most),
      exclusiveMaximum: this.#number("exclusiveMaximum"),
    };
  }

  /** The `multipleOf` constraint; a multiple of 1 only says that a number is whole. */
  multiples(): Located[] {
    const value = this.#number("multipleOf");
    if (value === undefined || value === 1) return [];
    if (!(value > 0)) throw this.#fault("multipleOf", "expected a number above 0");
    return [{ schema: value, pointer: under(this.#pointer, "multipleOf") }];
  }

  count(keyword: string, absent: number): number {
    const value = this.#keywords[keyword];
    if (value === undefined) return absent;
    if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
    throw this.#fault(keyword, "expected a whole number from 0 on");
  }

  texts(keyword: string): Located[] {
    const value = this.#keywords[keyword];
    if (value === undefined) return [];
    if (typeof value !== "string") throw this.#fault(keyword, "expected a text");
    return [{ schema: value, pointer: under(this.#pointer, keyword) }];
  }

  /** The formats of texts, without those that forbid nothing. */
  format(): Located[] {
    return this.texts("format").filter(({ schema }) => {
      if (ANNOTATING_FORMATS.has(schema as string) || INTEGER_FORMATS.has(schema)) return false;
      if (FORMATS.has(schema as string)) return true;
      const known = [...FORMATS.keys(), ...INTEGER_FORMATS.keys()].join(", ");
      throw this.#fault("format", `the format ${schema} is not supported; those are ${known}`);
    });
  }

  names(keyword: string): readonly string[] {
    const value = this.#keywords[keyword];
    if (value === undefined) return [];
    if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
    throw this.#fault(keyword, "expected a list of names");
  }

  properties(): ReadonlyMap<string, readonly Located[]> {
    const value = this.#keywords["properties"];
    if (value === undefined) return new Map();
    if (!isJsonObject(value)) {
      throw this.#fault("properties", "expected an object of schemas");
    }
    return new Map(
      Object.entries(value).map(([name, schema]) => [
        name,
        [{ schema, pointer: under(this.#pointer, "properties", name) }],
      ]),
    );
  }

  schemas(keyword: string): Located[] {
    const schema = this.#keywords[keyword];
    return schema === undefined ? [] : [{ schema, pointer: under(this.#pointer, keyword) }];
  }

  /** `items` with a list is the older form of `prefixItems`, and `additionalItems` is its rest. */
  items(): Pick<SchemaShape, "prefix" | "items"> {
    const { items, prefixItems } = this.#keywords;
    const keyword = prefixItems === undefined ? "items" : "prefixItems";
    const list = prefixItems ?? items;
    if (!Array.isArray(list)) return { prefix: [], items: this.schemas("items") };
    const prefix = list.map((schema, at) => [
      { schema, pointer: under(this.#pointer, keyword, at) },
    ]);
    return { prefix, items: this.schemas(Array.isArray(items) ? "additionalItems" : "items") };
  }

  #number(keyword: string): number | undefined {
    const value = this.#keywords[keyword];
    if (value === undefined) return undefined;
    if (typeof value === "number") return value;
    throw this.#fault(keyword, "expected a number");
  }

  #fault(keyword: string, reason: string): SchemaFault {
    return new SchemaFault(under(this.#pointer, keyword), reason);
  }
}
