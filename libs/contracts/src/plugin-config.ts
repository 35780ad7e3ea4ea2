import { isJsonObject } from "@heddle/base/json-object";
import { z } from "zod";
import { check, type ValidationFault } from "./validation.ts";

/** A longer schema is neither sent to masters nor read by them. */
export const MAX_SCHEMA_BYTES = 16 * 1024;
/** The most bytes of all schemas of one worker. */
export const MAX_SCHEMAS_BYTES = 64 * 1024;

/** Deeper schemas are not used. */
const MAX_DEPTH = 8;
/** Alternatives multiply with their depth. */
const MAX_ALTERNATIVES = 16;

/** Keywords with schemas as values, by their form. */
const ONE = new Set(["items", "additionalProperties"]);
const LIST = new Set(["anyOf", "allOf", "prefixItems"]);
const NAMED = new Set(["properties"]);

/** All other keywords that a master accepts. */
const PLAIN = new Set([
  "$schema",
  "$id",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "type",
  "enum",
  "const",
  "required",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
  "minLength",
  "maxLength",
  "minItems",
  "maxItems",
]);

/** Finds the faults in the fields of a plugin's algorithm. */
export type OwnConfigCheck = (own: Readonly<Record<string, unknown>>) => readonly ValidationFault[];

/**
 * The check of a plugin's JSON Schema, which is untrusted. Undefined for a schema that is too
 * large, invalid, or has keywords with unbounded cost or references (patterns, references,
 * conditions): then only the trainer checks. Fields that it does not name are faults.
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
    // The trainer reports a schema that cannot be compiled.
    return undefined;
  }
}

function isPlain(schema: unknown, depth: number): schema is Readonly<Record<string, unknown>> {
  if (!isJsonObject(schema)) return false;
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
