// holds: api-errors

import { openApiDocument } from "@heddle/contracts/openapi";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const MODEL = "FamilyA-1-2B";
const MESSAGES = [{ role: "user", content: "hello" }];

/** A right body of each endpoint. */
const BODIES = {
  "/chat/completions": { model: MODEL, messages: MESSAGES, max_tokens: 4 },
  "/completions": { model: MODEL, prompt: "hello", max_tokens: 4 },
  "/embeddings": { model: MODEL, input: "hello" },
  "/responses": { model: MODEL, input: "hello", max_output_tokens: 16 },
  "/messages": { model: MODEL, messages: MESSAGES, max_tokens: 4 },
  "/moderations": { input: "hello" },
  "/rerank": { model: MODEL, query: "a", documents: ["b"] },
} as const;

/** No field takes one of these, but for objects, whose unknown members are tolerated. */
const WRONG = [{ nonsense: [1] }, [[{ nonsense: 1 }]], -7.5, 1e300];
const OBJECTS = new Set(["text", "reasoning", "metadata", "output_config"]);

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

interface Refusal {
  readonly error?: { readonly param?: string | null; readonly message?: string };
}

function fieldsOf(path: string): string[] {
  const document = openApiDocument("test") as unknown as {
    readonly paths: Record<
      string,
      { post: { requestBody: { content: Record<string, { schema: object }> } } }
    >;
    readonly components: { schemas: Record<string, object> };
  };
  const schema =
    document.paths[`/api/v1${path}`]?.post.requestBody.content["application/json"]?.schema;
  const collect = (part: unknown): string[] => {
    const { $ref, properties = {}, allOf = [], anyOf = [], oneOf = [] } = Object(part);
    if (typeof $ref === "string")
      return collect(document.components.schemas[$ref.split("/").at(-1)!]);
    return [...Object.keys(properties), ...[...allOf, ...anyOf, ...oneOf].flatMap(collect)];
  };
  return [...new Set(collect(schema))];
}

describe("wrong types: a field of any inference endpoint", () => {
  it.each(Object.entries(BODIES))(
    "%s names it in param, whatever the value",
    async (path, body) => {
      const found: string[] = [];
      const fields = fieldsOf(path);
      expect(fields.length).toBeGreaterThan(1);
      for (const field of fields) {
        for (const wrong of WRONG) {
          const reply = await send(server, "POST", `/api/v1${path}`, { ...body, [field]: wrong });
          const text = await reply.text();
          const { error } = text.startsWith("{") ? (JSON.parse(text) as Refusal) : {};
          const names = (error?.param ?? "").split(/[.[]/)[0];
          const isNamed = reply.status === 400 && names === field;
          const isObject = OBJECTS.has(field) && wrong === WRONG[0];
          if (!isNamed && !isObject)
            found.push(
              `${field}=${JSON.stringify(wrong)}: ${reply.status} ${error?.param} ${error?.message?.slice(0, 80)}`,
            );
        }
      }
      expect(found).toEqual([]);
    },
  );
});
