// holds: bound-body

import { parseCompletionRequest } from "@heddle/contracts/api/completions";
import { parseEmbeddingRequest } from "@heddle/contracts/api/embeddings";
import { parseDetokenizeRequest } from "@heddle/contracts/api/inference/tokens";
import { OPERATIONS } from "@heddle/contracts/api/operations";
import { validate } from "@heddle/contracts/validation";
import { expect, test } from "vitest";
import type { z } from "zod";
import { parseJsonBody } from "./json-body.ts";

/** The longest that one body may keep a master's event loop, in milliseconds of CPU time. */
const MAX_MS = 50;
/** Within the bounds of a body: its fields and items, those of one object, those of one array. */
const ITEMS = 65_000;
const FIELDS = 8_192;
const ARRAY = 16_384;

const list = <T>(length: number, item: T) => Array<T>(length).fill(item);
const map = (length: number, value: unknown) =>
  Object.fromEntries(list(length, value).map((each, at) => [`f${at}`, each]));

/** Values of every form that are wrong for almost every field. */
const WORST: readonly (readonly [form: string, json: string])[] = Object.entries({
  "a map of numbers": map(FIELDS, 0),
  "a map of maps": map(FIELDS, {}),
  numbers: list(ITEMS, 0.5),
  texts: list(ARRAY, "x"),
  objects: list(ARRAY, {}),
  "lists of texts": list(128, list(500, "x")),
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

/** The CPU time of the quickest of three tries: compilation and garbage collection come and go. */
function quickestMs(body: Buffer, parse: (given: unknown) => unknown): number {
  let least = Number.POSITIVE_INFINITY;
  for (let at = 0; at < 3 && least > MAX_MS / 2; at++) {
    const before = process.threadCpuUsage();
    try {
      parse(parseJsonBody(body));
    } catch {
      // Most are refused.
    }
    const { user, system } = process.threadCpuUsage(before);
    least = Math.min(least, (user + system) / 1_000);
  }
  return least;
}

test("bodies: no field of any operation takes more than 50 ms to check", () => {
  const fields = fieldsOfBodies();
  expect(fields.length).toBeGreaterThan(200);
  const long: unknown[] = [];
  for (const { name, parse, field } of fields) {
    for (const [form, json] of field === "" ? WORST.slice(0, 1) : WORST) {
      const body = Buffer.from(field === "" ? json : `{${JSON.stringify(field)}:${json}}`);
      const ms = quickestMs(body, parse);
      if (ms > MAX_MS) long.push([name, form, Math.round(ms)]);
    }
  }
  expect(long).toEqual([]);
}, 600_000);

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
