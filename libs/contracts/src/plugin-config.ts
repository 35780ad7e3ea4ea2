import { z } from "zod";
import { check, type ValidationFault } from "./validation.ts";

/** A schema that is longer is not told to masters, nor looked at by them. */
export const MAX_SCHEMA_BYTES = 16 * 1024;
/** Of all schemas of one worker. */
export const MAX_SCHEMAS_BYTES = 64 * 1024;

/** Schemas that are nested deeper are not looked at. */
const MAX_DEPTH = 8;
/** Alternatives multiply with the depth at which they stand. */
const MAX_ALTERNATIVES = 16;

/** Keywords whose values are schemas themselves, by how they hold them. */
const ONE = new Set(["items", "additionalProperties"]);
const LIST = new Set(["anyOf", "allOf", "prefixItems"]);
const NAMED = new Set(["properties"]);

/** All else that may stand in a schema that a master looks at. */
const PLAIN = new Set([
  ...["$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"],
  ...["type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum"],
  ...["exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"],
]);

/** Finds what is wrong with the fields that a plugin's algorithm has of its own. */
export type OwnConfigCheck = (own: Readonly<Record<string, unknown>>) => readonly ValidationFault[];

/**
 * How configs are held against a plugin's JSON Schema, which came from another process. Undefined
 * for one that is too large, is none, or has what could cost without bounds or leads elsewhere
 * (patterns, references, conditions): what it says is then for the trainer alone. Fields that it does
 * not name are faults, as they are there.
 */
export function ownConfigCheck(text: string): OwnConfigCheck | undefined {
  if (Buffer.byteLength(text) > MAX_SCHEMA_BYTES) return undefined;
  try {
    const schema: unknown = JSON.parse(text);
    if (!isPlain(schema, 0) || schema["type"] !== "object") return undefined;
    const config = z.fromJSONSchema({ additionalProperties: false, ...schema });
    const request = z.object({ config });
    return (own) => check(request, { config: own }).faults;
  } catch {
    // What no schema can be made of is for the trainer to say.
    return undefined;
  }
}

function isPlain(schema: unknown, depth: number): schema is Readonly<Record<string, unknown>> {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return false;
  if (depth > MAX_DEPTH) return false;
  return Object.entries(schema).every(([keyword, value]) => isPlainKeyword(keyword, value, depth));
}

function isPlainKeyword(keyword: string, value: unknown, depth: number): boolean {
  if (PLAIN.has(keyword)) return true;
  if (ONE.has(keyword)) return typeof value === "boolean" || isPlain(value, depth + 1);
  if (LIST.has(keyword)) {
    if (!Array.isArray(value) || value.length > MAX_ALTERNATIVES) return false;
    return value.every((each) => isPlain(each, depth + 1));
  }
  if (!NAMED.has(keyword) || typeof value !== "object" || value === null) return false;
  return Object.values(value).every((each) => isPlain(each, depth + 1));
}
