// holds: api-errors

import { openApiDocument } from "@heddle/contracts/openapi";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

// Values that the contract excludes, made of the contract itself, go to each inference endpoint.

const MODEL = "FamilyA-1-2B";
const MESSAGES = [{ role: "user", content: "hello" }];

/** A right body of each endpoint. */
const BODIES: Readonly<Record<string, object>> = {
  "/chat/completions": { model: MODEL, messages: MESSAGES, max_tokens: 4 },
  "/completions": { model: MODEL, prompt: "hello", max_tokens: 4 },
  "/embeddings": { model: MODEL, input: "hello" },
  "/responses": { model: MODEL, input: "hello", max_output_tokens: 16 },
  "/responses/input_tokens": { model: MODEL, input: "hello" },
  "/messages": { model: MODEL, messages: MESSAGES, max_tokens: 4 },
  "/messages/count_tokens": { model: MODEL, messages: MESSAGES },
  "/moderations": { input: "hello" },
  "/rerank": { model: MODEL, query: "a", documents: ["b"] },
  "/tokenize": { model: MODEL, prompt: "hello" },
  "/detokenize": { model: MODEL, tokens: [1] },
  "/apply-template": { model: MODEL, messages: MESSAGES },
  "/batches": { input_file_id: "file-1", endpoint: "/v1/completions", completion_window: "24h" },
  "/conversations": { metadata: { a: "b" } },
};

/** Longer lists and texts than these are not made. */
const MAX_ITEMS = 5_000;
const MAX_CHARS = 100_000;
const MAX_DEPTH = 3;

type Schema = Readonly<Record<string, unknown>>;

interface Case {
  readonly path: readonly string[];
  readonly value: unknown;
  readonly why: string;
}

const document = openApiDocument("test") as unknown as {
  readonly paths: Record<
    string,
    { post?: { requestBody?: { content: Record<string, { schema: Schema }> } } }
  >;
  readonly components: { schemas: Record<string, Schema> };
};

function resolved(schema: Schema): Schema {
  const { $ref } = schema;
  if (typeof $ref !== "string") return schema;
  return resolved(document.components.schemas[$ref.split("/").at(-1)!]!);
}

/** The alternatives of a schema, without the one that allows null. */
function alternatives(given: Schema): Schema[] {
  const schema = resolved(given);
  const { anyOf, oneOf } = schema as { anyOf?: Schema[]; oneOf?: Schema[] };
  const options = anyOf ?? oneOf;
  if (!options) return schema["type"] === "null" ? [] : [schema];
  return options.flatMap(alternatives);
}

/** Values that no alternative takes. */
function wrongValues(options: readonly Schema[]): readonly (readonly [unknown, string])[] {
  const takes = (type: string) => options.some((each) => typesOf(each).includes(type));
  const isNumber = takes("number") || takes("integer");
  const found: [unknown, string][] = [];
  if (!takes("string")) found.push(["nonsense", "a text"]);
  if (!takes("boolean")) found.push([true, "a boolean"]);
  if (!isNumber) found.push([-7.5, "a number"]);
  if (!takes("array")) found.push([[[]], "a list"]);
  if (!takes("object")) found.push([{ nonsense: 1 }, "an object"]);
  if (options.length > 1) return found;
  for (const option of options) found.push(...outside(option, takes("number")));
  return found;
}

function outside(schema: Schema, takesFractions: boolean): [unknown, string][] {
  const found: [unknown, string][] = [];
  const bound = (keyword: string) => schema[keyword] as number | undefined;
  const [least, most] = [bound("minimum"), bound("maximum")];
  if (least !== undefined && Number.isSafeInteger(least)) found.push([least - 1, "below"]);
  if (most !== undefined && Number.isSafeInteger(most)) found.push([most + 1, "above"]);
  if (schema["type"] === "integer" && !takesFractions) found.push([1.5, "a fraction"]);
  if (Array.isArray(schema["enum"])) found.push(["no-such-value", "not in enum"]);
  const longest = bound("maxLength");
  if (longest !== undefined && longest < MAX_CHARS) found.push(["x".repeat(longest + 1), "long"]);
  if ((bound("minLength") ?? 0) > 0) found.push(["", "short"]);
  const largest = bound("maxItems");
  if (largest !== undefined && largest < MAX_ITEMS) {
    found.push([new Array(largest + 1).fill("a"), "many"]);
  }
  if ((bound("minItems") ?? 0) > 0) found.push([[], "few"]);
  return found;
}

function typesOf({ type, const: value, enum: values, properties }: Schema): string[] {
  if (typeof type === "string") return [type];
  if (Array.isArray(type)) return type as string[];
  if (value !== undefined) return [typeof value];
  if (Array.isArray(values)) return values.map((each) => typeof each);
  if (properties !== undefined) return ["object"];
  return ["string", "number", "boolean", "array", "object"];
}

function casesOf(schema: Schema, path: readonly string[] = []): Case[] {
  const options = alternatives(schema);
  const own = path.length === 0 ? [] : wrongValues(options);
  const cases = own.map(([value, why]): Case => ({ path, value, why }));
  const [only] = options;
  if (options.length !== 1 || !only || path.length >= MAX_DEPTH) return cases;
  const properties = Object.entries((only["properties"] ?? {}) as Record<string, Schema>);
  return [...cases, ...properties.flatMap(([name, each]) => casesOf(each, [...path, name]))];
}

function bodyWith(body: object, path: readonly string[], value: unknown): object {
  const [name, ...rest] = path;
  const member: unknown = Object(body)[name as string];
  const inner = typeof member === "object" && member !== null ? member : {};
  return { ...body, [name as string]: rest.length === 0 ? value : bodyWith(inner, rest, value) };
}

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

describe("bad input that the contract excludes, at any inference endpoint", () => {
  it.each(Object.entries(BODIES))(
    "%s refuses it with 400 or 422 and names the field",
    async (path, body) => {
      const content = document.paths[`/api/v1${path}`]?.post?.requestBody?.content;
      const cases = casesOf(content?.["application/json"]?.schema ?? {});
      expect(cases.length).toBeGreaterThan(3);
      const found: string[] = [];
      for (const { path: field, value, why } of cases) {
        const reply = await send(server, "POST", `/api/v1${path}`, bodyWith(body, field, value));
        const text = await reply.text();
        const { error } = JSON.parse(text) as { error?: { param?: string | null } };
        const isNamed = error?.param?.split(/[.[]/)[0] === field[0];
        if ([400, 422].includes(reply.status) && isNamed) continue;
        found.push(`${field.join(".")} ${why}: ${reply.status} ${text.slice(0, 160)}`);
      }
      expect(found).toEqual([]);
    },
  );
});
