import { SchemaFault, under } from "./schema-fault.ts";
import { KeywordReader } from "./schema-keywords.ts";
import { type JsonType, type Located, openShape, type SchemaShape } from "./schema-shape.ts";

const TYPES = ["null", "boolean", "number", "string", "object", "array"] as const;

/** Keywords of which no shape can say that a value violates them. */
const HELD_ONLY = [
  "multipleOf",
  "format",
  "additionalProperties",
  "propertyNames",
  "items",
  "unevaluatedProperties",
  "unevaluatedItems",
  "additionalItems",
] as const;

/**
 * The shapes of which a value has one exactly where it violates a schema's own keywords, without
 * those that combine schemas. Each keyword speaks of one type, and values of others do not violate it.
 * Throws a SchemaFault that names a keyword that cannot be held so.
 */
export function keywordViolations(
  keywords: Record<string, unknown>,
  pointer: string,
): SchemaShape[] {
  const read = new KeywordReader(keywords, pointer);
  read.refuseUnsupported();
  for (const keyword of HELD_ONLY) {
    if (!(keyword in keywords) || isHarmless(keyword, keywords[keyword])) continue;
    const reason = `${keyword} is not supported within not, or where alternatives of oneOf overlap`;
    throw new SchemaFault(under(pointer, keyword), reason);
  }
  return [
    ...ofTypes(keywords, read, pointer),
    ...ofValues(read, pointer),
    ...ofNumbers(read, pointer),
    ...ofTexts(read, pointer),
    ...ofObjects(read, pointer),
    ...ofArrays(read, pointer),
  ];
}

/** Allows everything. */
function isHarmless(keyword: string, value: unknown): boolean {
  if (keyword.startsWith("unevaluated") || keyword === "additionalItems") return false;
  return value === true;
}

function shapeOf(pointer: string, type: JsonType, says: Partial<SchemaShape>): SchemaShape {
  return { ...openShape(pointer), types: new Set([type]), ...says };
}

function ofTypes(
  { type }: Record<string, unknown>,
  read: KeywordReader,
  pointer: string,
): SchemaShape[] {
  const types = type === undefined ? undefined : read.types(false);
  if (types === undefined) return [];
  const others = TYPES.filter((name) => !types.has(name));
  const isWholeOnly = types.has("integer") && !types.has("number");
  const rest = new Set<JsonType>(others.filter((name) => name !== "number" || !isWholeOnly));
  const shapes = rest.size > 0 ? [{ ...openShape(pointer), types: rest }] : [];
  return isWholeOnly ? [...shapes, shapeOf(pointer, "number", { isFractional: true })] : shapes;
}

function ofValues(read: KeywordReader, pointer: string): SchemaShape[] {
  const values = read.values();
  if (values === undefined) return [];
  const excluded = values.map((schema) => ({ schema, pointer }));
  return [{ ...openShape(pointer), excluded }];
}

function ofNumbers(read: KeywordReader, pointer: string): SchemaShape[] {
  const { minimum, exclusiveMinimum, maximum, exclusiveMaximum } = read.numberBounds();
  const bounds = [
    { exclusiveMaximum: minimum },
    { maximum: exclusiveMinimum },
    { exclusiveMinimum: maximum },
    { minimum: exclusiveMaximum },
  ];
  return bounds
    .filter((bound) => Object.values(bound)[0] !== undefined)
    .map((bound) => shapeOf(pointer, "number", bound));
}

function ofTexts(read: KeywordReader, pointer: string): SchemaShape[] {
  const shapes = counts(read, "Length").map((count) => shapeOf(pointer, "string", count));
  const lackedPatterns = read.texts("pattern");
  if (lackedPatterns.length === 0) return shapes;
  return [...shapes, shapeOf(pointer, "string", { lackedPatterns })];
}

function ofObjects(read: KeywordReader, pointer: string): SchemaShape[] {
  const object = (says: Partial<SchemaShape>) => shapeOf(pointer, "object", says);
  const missing = read.names("required").map((name) => {
    const nothing = { schema: false, pointer: under(pointer, "required") };
    return object({ properties: new Map([[name, [nothing]]]) });
  });
  const wrong = [...read.properties()].map(([name, schemas]) => {
    const properties = new Map([[name, schemas.map(negated)]]);
    return object({ properties, required: new Set([name]) });
  });
  return [...missing, ...wrong, ...counts(read, "Properties").map(object)];
}

function ofArrays(read: KeywordReader, pointer: string): SchemaShape[] {
  const { prefix } = read.items();
  const wrong = prefix.map((schemas, at) => {
    const before = prefix.slice(0, at).map(() => []);
    const says = { prefix: [...before, schemas.map(negated)], minItems: at + 1 };
    return shapeOf(pointer, "array", says);
  });
  return [...wrong, ...counts(read, "Items").map((count) => shapeOf(pointer, "array", count))];
}

/** Fewer than the least, or more than the most. */
function counts(read: KeywordReader, of: "Length" | "Properties" | "Items"): object[] {
  const least = read.count(`min${of}`, 0);
  const most = read.count(`max${of}`, Number.POSITIVE_INFINITY);
  return [
    ...(least > 0 ? [{ [`max${of}`]: least - 1 }] : []),
    ...(most < Number.POSITIVE_INFINITY ? [{ [`min${of}`]: most + 1 }] : []),
  ];
}

/** The values that are not valid for it. */
export function negated({ schema, pointer, isNegated = false }: Located): Located {
  return { schema, pointer, isNegated: !isNegated };
}
