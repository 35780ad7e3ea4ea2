import { isUtf8 } from "node:buffer";
import { AppError } from "@heddle/base/errors";
import { isJsonObject } from "@heddle/base/json-object";
import { RequestFaults } from "@heddle/contracts/validation";

/** Maximum nesting of arrays and objects in a body. */
const MAX_JSON_DEPTH = 64;
/**
 * Maximum fields and items of a body: each is checked and copied several times, and millions of
 * them would block the event loop.
 */
const MAX_JSON_ITEMS = 65_536;
/**
 * The most entries of one object, and of one array of anything but numbers. Where each is wrong, a schema
 * makes a fault of each before its own bound refuses them all.
 */
const MAX_OBJECT_FIELDS = 8_192;
const MAX_ARRAY_ITEMS = 16_384;

/**
 * The object in a request body. Throws `invalid_json` for anything else. Of duplicate fields in one
 * object the last counts, as in JSON.parse.
 */
export function parseJsonBody(body: Buffer): Record<string, unknown> {
  if (body.length === 0) throw invalid("the body is empty; a JSON object is expected");
  if (!isUtf8(body)) throw invalid("the body is not UTF-8");
  checkShape(body);
  // A byte order mark, which some editors add, is not part of the text (RFC 8259, 8.1).
  const text = body.toString(
    "utf8",
    body[0] === 0xef && body.indexOf(BYTE_ORDER_MARK) === 0 ? 3 : 0,
  );
  const value = parse(text);
  if (!isJsonObject(value)) {
    throw invalid("the body must be a JSON object");
  }
  // Objects built from the body would silently lose such a field.
  if (text.includes("__proto__") || text.includes("\\u")) refuseProtoKeys(value, []);
  return value as Record<string, unknown>;
}

/** The same text for all bodies with the same content, regardless of the order of fields. */
export function canonicalJson(body: Buffer): string {
  return JSON.stringify(parseJsonBody(body), (_name, value: unknown) => {
    if (!isJsonObject(value)) return value;
    const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return Object.fromEntries(fields);
  });
}

function refuseProtoKeys(value: unknown, path: readonly PropertyKey[]): void {
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    const here = [...path, Array.isArray(value) ? Number(key) : key];
    if (key === "__proto__") {
      const param = here.join(".");
      const message = `Invalid value for '${param}': no field may have this name.`;
      const fault = { param, path: here, code: "invalid_value" as const, message };
      throw new AppError("invalid_value", message, { param, cause: new RequestFaults([fault]) });
    }
    refuseProtoKeys(inner, here);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(`the body could not be parsed as JSON (${(error as Error).message})`);
  }
}

function invalid(why: string): AppError {
  return new AppError("invalid_json", `Invalid request: ${why}.`);
}

const BYTE_ORDER_MARK = Buffer.from("\uFEFF");
const QUOTE = 0x22;
const OBJECT = 0x7b;
const ARRAY = 0x5b;
/** The exponent's letter in a number, as in 1e9. */
const EXPONENT = 0x65;
const BACKSLASH = 0x5c;

/** An object or array that is being scanned. */
interface OpenValue {
  readonly isObject: boolean;
  commas: number;
  hasOnlyNumbers: boolean;
}

/**
 * Counts brackets and commas outside of strings before parsing. ASCII bytes never occur inside a
 * longer UTF-8 character.
 */
function checkShape(body: Buffer): void {
  const open: OpenValue[] = [];
  let items = 0;
  for (let i = 0; i < body.length; i++) {
    const byte = body[i] as number;
    const inner = open.at(-1);
    if (inner && isOfOther(byte)) inner.hasOnlyNumbers = false;
    if (byte === QUOTE) i = endOfString(body, i + 1);
    else if (byte === OBJECT || byte === ARRAY) {
      open.push({ isObject: byte === OBJECT, commas: 0, hasOnlyNumbers: true });
      items++;
      if (open.length > MAX_JSON_DEPTH) {
        throw invalid(`the body is nested deeper than ${MAX_JSON_DEPTH} levels`);
      }
    } else if (byte === 0x7d || byte === 0x5d) open.pop();
    else if (byte === 0x2c) {
      items++;
      if (inner) countComma(inner);
    }
    if (items > MAX_JSON_ITEMS) {
      throw invalid(`the body has more than ${MAX_JSON_ITEMS} fields and items in all`);
    }
  }
}

/** Whether the byte begins anything but a number: a string, an object, an array, true, false or null. */
function isOfOther(byte: number): boolean {
  return (
    byte === QUOTE ||
    byte === OBJECT ||
    byte === ARRAY ||
    (byte >= 0x61 && byte <= 0x7a && byte !== EXPONENT)
  );
}

function countComma(value: OpenValue): void {
  value.commas++;
  if (value.isObject && value.commas >= MAX_OBJECT_FIELDS) {
    throw invalid(`an object in the body has more than ${MAX_OBJECT_FIELDS} fields`);
  }
  if (value.isObject || value.hasOnlyNumbers || value.commas < MAX_ARRAY_ITEMS) return;
  throw invalid(
    `an array in the body has more than ${MAX_ARRAY_ITEMS} items, which only arrays of numbers may have`,
  );
}

/** Bytes of a string that are scanned one by one; beyond that a native search is faster. */
const SHORT_STRING_BYTES = 32;

function endOfString(body: Buffer, from: number): number {
  const end = Math.min(body.length, from + SHORT_STRING_BYTES);
  for (let at = from; at < end; at++) {
    const byte = body[at];
    if (byte === QUOTE) return at;
    // An escaped character ends no string.
    if (byte === BACKSLASH) at++;
  }
  let at = body.indexOf(QUOTE, from);
  while (at !== -1 && isEscaped(body, at)) at = body.indexOf(QUOTE, at + 1);
  return at === -1 ? body.length : at;
}

function isEscaped(body: Buffer, at: number): boolean {
  let backslashes = 0;
  while (body[at - 1 - backslashes] === BACKSLASH) backslashes++;
  return backslashes % 2 === 1;
}
