// holds: bound-body

import { parseCompletionRequest } from "@heddle/contracts/api/completions";
import { parseEmbeddingRequest } from "@heddle/contracts/api/embeddings";
import { parseDetokenizeRequest } from "@heddle/contracts/api/inference/tokens";
import { OPERATIONS } from "@heddle/contracts/api/operations";
import { validate } from "@heddle/contracts/validation";
import { expect, test } from "vitest";
import type { z } from "zod";
import { parseJsonBody } from "./json-body.ts";

/** Reads of a body's objects, arrays and fields by its check, per value in it. */
const MAX_READS = 16;
/** Values of one body: enough that work which grows faster than the body shows. */
const MANY = 2_048;
/** The fields of one object and the items of one array that a body may have. */
const FIELDS = 8_192;
const ARRAY = 16_384;

const list = <T>(length: number, item: T) => Array<T>(length).fill(item);
const map = (length: number, value: unknown) =>
  Object.fromEntries(list(length, value).map((each, at) => [`f${at}`, each]));

/** Values of every form that are wrong for almost every field. */
const WORST: readonly (readonly [form: string, json: string])[] = Object.entries({
  "a map of numbers": map(MANY, 0),
  "a map of maps": map(MANY, {}),
  numbers: list(MANY, 0.5),
  texts: list(MANY, "x"),
  objects: list(MANY, {}),
  "lists of texts": list(32, list(MANY / 32, "x")),
}).map(([form, value]) => [form, JSON.stringify(value)]);

/** Operations whose bodies are checked beside their schema. */
const PARSERS: Readonly<Record<string, (body: unknown) => unknown>> = {
  createCompletion: parseCompletionRequest,
  createEmbedding: parseEmbeddingRequest,
  detokenize: parseDetokenizeRequest,
};

/** Every field of every body, each schema once, and the parser of its body. */
function fieldsOfBodies() {
  const seen = new Set<unknown>();
  const found: {
    readonly name: string;
    readonly parse: (body: unknown) => unknown;
    readonly field: string;
  }[] = [];
  for (const { operationId, body } of Object.values(OPERATIONS).flatMap((each) =>
    Object.values(each),
  )) {
    if (!body) continue;
    const parse = PARSERS[operationId] ?? ((given: unknown) => validate(body, given));
    for (const [field, schema] of Object.entries<z.ZodType>(body.shape)) {
      if (seen.has(schema)) continue;
      seen.add(schema);
      found.push({ name: `${operationId} ${field}`, parse, field });
    }
    found.push({ name: `${operationId} unknown fields`, parse, field: "" });
  }
  return found;
}

/** The reads per value of a body while it is parsed and refused. */
function readsPerValue(json: string, parse: (given: unknown) => unknown): number {
  let reads = 0;
  const counting: ProxyHandler<object> = {
    get(target, key) {
      reads++;
      return Reflect.get(target, key);
    },
    has(target, key) {
      reads++;
      return Reflect.has(target, key);
    },
    ownKeys(target) {
      const keys = Reflect.ownKeys(target);
      reads += keys.length;
      return keys;
    },
    getOwnPropertyDescriptor(target, key) {
      reads++;
      return Reflect.getOwnPropertyDescriptor(target, key);
    },
  };
  let values = 0;
  const body: unknown = JSON.parse(json, (_, value: unknown) => {
    values++;
    return typeof value === "object" && value !== null ? new Proxy(value, counting) : value;
  });
  try {
    parse(body);
  } catch {
    // Most are refused.
  }
  return reads / values;
}

test("bodies: checking any field reads each value a bounded number of times", () => {
  const fields = fieldsOfBodies();
  expect(fields.length).toBeGreaterThan(200);
  const long: unknown[] = [];
  for (const { name, parse, field } of fields) {
    for (const [form, json] of field === "" ? WORST.slice(0, 1) : WORST) {
      const body = field === "" ? json : `{${JSON.stringify(field)}:${json}}`;
      const reads = readsPerValue(body, parse);
      if (reads > MAX_READS) long.push([name, form, reads]);
    }
  }
  expect(long).toEqual([]);
});

test.each([
  ["an object", map(FIELDS + 1, 0), "an object in the body has more than 8192 fields"],
  ["texts", list(ARRAY + 2, "x"), "an array in the body has more than 16384 items"],
  ["mixed items", [...list(ARRAY, 1), "x", 1, 1], "an array in the body has more than 16384 items"],
  ["null", [...list(ARRAY, 1), null, 1], "an array in the body has more than 16384 items"],
])("bodies: %s beyond the bound is refused before it is parsed", (_, value, message) => {
  const body = Buffer.from(JSON.stringify({ a: value }));
  expect(() => parseJsonBody(body)).toThrow(message);
});

test("bodies: what the bounds allow is parsed", () => {
  const body = {
    a: map(FIELDS, 0),
    b: list(ARRAY, "x"),
    c: list(30_000, -1e-7),
    d: list(9, "[,{"),
  };
  expect(parseJsonBody(Buffer.from(JSON.stringify(body)))).toEqual(body);
});
