import OpenAI, { type APIError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ProcessCluster, TINY } from "../../../test/process-cluster.ts";

// An unmodified client's view of each error: its class, code and `param`.

const MAX_BODY_BYTES = 65_536;

let cluster: ProcessCluster;
let openai: OpenAI;

beforeAll(async () => {
  cluster = await ProcessCluster.start({ masterFlags: ["--max-body-bytes", `${MAX_BODY_BYTES}`] });
  openai = cluster.openai;
});
afterAll(() => cluster.close());

const hello = { model: TINY, messages: [{ role: "user" as const, content: "hello" }] };

type ErrorClass = new (...args: never[]) => APIError;

/** The error of a call, which must be of the class. */
async function errorOf(call: Promise<unknown>, type: ErrorClass): Promise<APIError> {
  const thrown = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(thrown).toBeInstanceOf(type);
  const error = thrown as APIError;
  expect(error.requestID).toMatch(/./);
  expect(error.error).toMatchObject({ request_id: error.requestID });
  return error;
}

/** A call with members that the client's types do not have, or have otherwise. */
function create(members: Record<string, unknown>, client = openai): Promise<unknown> {
  const body = { ...hello, ...members };
  return client.chat.completions.create(body as unknown as typeof hello);
}

// holds: api-typed-errors
describe("the official client's typed errors", () => {
  it("AuthenticationError for a wrong, a malformed and a missing key", async () => {
    for (const key of ["wrong", `${cluster.adminKey.slice(0, -1)}!`, " "]) {
      const error = await errorOf(create({}, cluster.client(key)), OpenAI.AuthenticationError);
      expect(error).toMatchObject({ status: 401, code: "invalid_api_key" });
    }
  });

  it("NotFoundError for an unknown model, in a call and by id", async () => {
    const called = await errorOf(create({ model: "gpt-nope" }), OpenAI.NotFoundError);
    expect(called).toMatchObject({ code: "model_not_found", param: "model" });
    expect(called.message).toContain("gpt-nope");
    await errorOf(openai.models.retrieve("gpt-nope"), OpenAI.NotFoundError);
  });

  // holds: key-models
  it("PermissionDeniedError without permission, NotFoundError beyond the key's models", async () => {
    const reader = cluster.client(await cluster.createKey({ scopes: ["models:read"] }));
    await errorOf(create({}, reader), OpenAI.PermissionDeniedError);
    const narrow = cluster.client(await cluster.createKey({ models: ["FamilyA-1-2B"] }));
    const status = (await errorOf(create({}, narrow), OpenAI.APIError)).status;
    expect([403, 404]).toContain(status);
    await create({ model: "FamilyA-1-2B", max_tokens: 1 }, narrow);
  });

  // holds: api-parameters
  it.each([
    [{ model: 5 }, "model"],
    [{ messages: "hello" }, "messages"],
    [{ messages: [] }, "messages"],
    [{ messages: [{ role: "user", content: 5 }] }, "messages[0].content"],
    [{ messages: [{ role: "wizard", content: "x" }] }, "messages[0].role"],
    [{ temperature: "hot" }, "temperature"],
    [{ temperature: 2.1 }, "temperature"],
    [{ top_p: -0.1 }, "top_p"],
    [{ max_tokens: 0 }, "max_tokens"],
    [{ max_completion_tokens: 1e9 }, "max_completion_tokens"],
    [{ max_tokens: 1, max_completion_tokens: 2 }, "max_tokens"],
    [{ n: 0 }, "n"],
    [{ n: 129 }, "n"],
    [{ stop: ["a", "b", "c", "d", "e"] }, "stop"],
    [{ seed: 1.5 }, "seed"],
    [{ presence_penalty: 3 }, "presence_penalty"],
    [{ frequency_penalty: "x" }, "frequency_penalty"],
    [{ logit_bias: { "1": 101 } }, "logit_bias"],
    [{ logit_bias: { x: 1 } }, "logit_bias"],
    [{ logit_bias: { "999999": 1 } }, "logit_bias"],
    [{ logprobs: 3 }, "logprobs"],
    [{ logprobs: true, top_logprobs: 21 }, "top_logprobs"],
    [{ top_logprobs: 2 }, "top_logprobs"],
    [{ response_format: { type: "xml" } }, "response_format.type"],
    [{ tools: [{ type: "custom", custom: { name: "f" } }] }, "tools"],
    [{ tool_choice: "required" }, "tool_choice"],
    [
      {
        tools: [
          { type: "function", function: { name: "f", parameters: { contains: { type: "null" } } } },
        ],
      },
      "tools[0].function.parameters",
    ],
    [
      { response_format: { type: "json_schema", json_schema: {} } },
      "response_format.json_schema.name",
    ],
    [
      {
        response_format: {
          type: "json_schema",
          json_schema: { name: "n", schema: { type: "array", contains: {} } },
        },
      },
      "response_format.json_schema.schema",
    ],
    [{ stream: "yes" }, "stream"],
    [{ stream_options: { include_usage: true } }, "stream_options"],
    [{ service_tier: "scale" }, "service_tier"],
  ])("BadRequestError for %j, naming %s", async (members, param) => {
    const error = await errorOf(create(members), OpenAI.BadRequestError);
    expect(error).toMatchObject({ status: 400, type: "invalid_request_error" });
    expect(error.param?.startsWith(param)).toBe(true);
  });

  it.each([
    [{ functions: [{ name: "f" }] }, "functions"],
    [{ function_call: { name: "f" } }, "function_call"],
    [{ audio: { voice: "alloy", format: "wav" } }, "audio"],
    [{ modalities: ["text", "audio"] }, "modalities"],
    [{ prediction: { type: "content", content: "x" } }, "prediction"],
    [{ web_search_options: {} }, "web_search_options"],
    [{ reasoning_effort: "high" }, "reasoning_effort"],
    [{ verbosity: "low" }, "verbosity"],
    [{ store: true }, "store"],
    [{ prompt_cache_retention: "24h" }, "prompt_cache_retention"],
    [{ prompt_cache_options: { mode: "explicit" } }, "prompt_cache_options"],
  ])("BadRequestError for %j, which is not supported", async (members, param) => {
    const error = await errorOf(create(members), OpenAI.BadRequestError);
    expect(error).toMatchObject({ code: "unsupported_parameter", param });
  });

  // holds: api-unknown-fields
  it("no error for unknown members", async () => {
    await create({ some_future_parameter: { deep: true }, max_tokens: 1 });
  });

  // holds: api-long-prompt
  it.each([false, true])(
    "BadRequestError for a prompt that is too long, stream %s",
    async (stream) => {
      const messages = [{ role: "user", content: "X".repeat(5000) }];
      const error = await errorOf(create({ messages, stream }), OpenAI.BadRequestError);
      expect(error.code).toBe("context_length_exceeded");
      expect(error.message).toMatch(/4096/);
      const counts = (error.message.match(/\d+/g) ?? []).map(Number);
      expect(counts.some((count) => count >= 5000 && count < 5100)).toBe(true);
    },
  );

  // holds: key-limits
  it("RateLimitError with the wait for a key without requests left", async () => {
    const key = await cluster.createKey({ limits: { requests_per_minute: 2 } });
    const limited = cluster.client(key);
    await create({ max_tokens: 1 }, limited);
    await create({ max_tokens: 1 }, limited);
    const error = await errorOf(create({}, limited), OpenAI.RateLimitError);
    expect(error).toMatchObject({ status: 429, code: "rate_limit_exceeded" });
    expect(Number(error.headers?.get("retry-after-ms"))).toBeGreaterThan(0);
    expect(error.headers?.get("x-ratelimit-limit-requests")).toBe("2");
    expect(error.headers?.get("x-ratelimit-remaining-requests")).toBe("0");
  });

  // holds: key-limits
  it("RateLimitError for reserved tokens that are never released", async () => {
    const key = await cluster.createKey({ limits: { tokens_per_minute: 200 } });
    const error = await errorOf(
      create({ max_tokens: 4000 }, cluster.client(key)),
      OpenAI.RateLimitError,
    );
    expect(error.headers?.get("x-should-retry")).toBe("false");
  });
});

// holds: api-errors
describe("the transport", () => {
  const post = (body: unknown) => cluster.request("POST", "/api/v1/chat/completions", body);

  // holds: api-body-limit
  it("answers a body over the limit with 413", async () => {
    const reply = await post({ ...hello, user: "x".repeat(MAX_BODY_BYTES) });
    expect(reply.status).toBe(413);
    expect(await reply.json()).toMatchObject({ error: { code: "request_too_large" } });
  });

  it("answers a wrong method with 405 and an unknown route with 404", async () => {
    const wrong = await cluster.request("GET", "/api/v1/chat/completions");
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST"]);
    expect(await wrong.json()).toMatchObject({
      error: { code: "method_not_allowed", param: null },
    });
    const unknown = await cluster.request("POST", "/api/v1/chat/nonsense", {});
    expect(unknown.status).toBe(404);
    expect(await unknown.json()).toMatchObject({ error: { code: "not_found" } });
  });

  it.each(["{", "[]", "null", '"text"', ""])("answers the body %j with 400", async (body) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ error: { type: "invalid_request_error" } });
  });

  it("returns a request id on success, on a stream, and on an error", async () => {
    const replies = [
      await post({ ...hello, max_tokens: 1 }),
      await post({ ...hello, max_tokens: 1, stream: true }),
      await post({ ...hello, n: 0 }),
    ];
    const ids = replies.map(({ headers }) => headers.get("x-request-id"));
    expect(new Set(ids).size).toBe(3);
    expect(ids).not.toContain(null);
    expect(replies[1]?.headers.get("content-type")).toMatch(/^text\/event-stream/);
    for (const reply of replies) await reply.text();
  });
});
