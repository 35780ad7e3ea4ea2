/** References that are followed to a schema. */
const MAX_LINKS = 8;
/** Longer texts are written as JSON: their length is not counted in one automaton. */
const MAX_RAW_CHARS = 500;
const COMBINING = ["anyOf", "oneOf", "allOf", "not", "if"];

/**
 * The parameters of a function that are texts and nothing else: in tagged calls they are written as
 * they are. What writes calls and what reads them must agree on it.
 */
export function rawParameters(parameters: unknown): ReadonlySet<string> {
  const { properties } = resolved(parameters, parameters);
  const raw = Object.entries(Object(properties) as object).filter(([, schema]) =>
    isText(resolved(schema, parameters)),
  );
  return new Set(raw.map(([name]) => name));
}

function isText(schema: Record<string, unknown>): boolean {
  const { type, enum: values, const: value, minLength = 0, maxLength } = schema;
  if (COMBINING.some((keyword) => keyword in schema)) return false;
  if (Number(minLength) > MAX_RAW_CHARS || Number(maxLength ?? 0) > MAX_RAW_CHARS) return false;
  if (type !== undefined) return type === "string";
  if (value !== undefined) return typeof value === "string";
  return Array.isArray(values) && values.every((each) => typeof each === "string");
}

/** The schema that references within the document lead to; one beside other keywords is not followed. */
function resolved(schema: unknown, document: unknown): Record<string, unknown> {
  let found = schema;
  for (let links = 0; links < MAX_LINKS; links++) {
    const { $ref: reference, ...others } = Object(found) as Record<string, unknown>;
    if (typeof reference !== "string") break;
    if (!reference.startsWith("#/") || Object.keys(others).length > 0) return { not: {} };
    found = reference
      .slice(2)
      .split("/")
      .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
      .reduce<unknown>((at, name) => (Object(at) as Record<string, unknown>)[name], document);
  }
  return Object(found) as Record<string, unknown>;
}
