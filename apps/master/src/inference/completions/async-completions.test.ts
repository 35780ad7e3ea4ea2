// holds: api-completions-async

import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import type { AsyncCompletion } from "@heddle/contracts/api/completions";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const hello = { model: "FamilyA-1-2B", prompt: "one two", max_tokens: 3 };

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: AsyncCompletion & { readonly error: { code: string; param: string } | null };
}

async function call(
  method: string,
  path: string,
  { body, headers = {}, key = server.adminKey }: CallParts = {},
): Promise<Answer> {
  const reply = await fetch(`${server.url}/api/v1/completions${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const json = (await reply.json()) as Answer["body"];
  return { status: reply.status, headers: reply.headers, body: json };
}

interface CallParts {
  readonly body?: object;
  readonly headers?: Record<string, string>;
  readonly key?: string;
}

const start = (more: object = {}, headers: Record<string, string> = {}) =>
  call("POST", "", {
    body: { ...hello, ...more },
    headers: { prefer: "respond-async", ...headers },
  });

async function ended(id: string): Promise<Answer> {
  let answer = await call("GET", `/${id}`);
  await eventually(async () => {
    answer = await call("GET", `/${id}`);
    return answer.status !== 202;
  });
  return answer;
}

describe("completions: polled ones", () => {
  it("answer 202 with where they are, and have the whole answer at their end", async () => {
    server.dispatch.script.tokenDelayMs = 200;
    const { status, headers, body } = await start();
    expect([status, body.status, body.choices]).toEqual([202, "in_progress", []]);
    expect(headers.get("location")).toBe(`/api/v1/completions/${body.id}`);
    expect(headers.get("preference-applied")).toBe("respond-async");
    expect((await call("GET", `/${body.id}`)).status).toBe(202);
    const answer = await ended(body.id);
    expect(answer.status).toBe(200);
    expect(answer.body).toMatchObject({
      id: body.id,
      object: "text_completion",
      status: "completed",
      choices: [{ text: "word0 word1 word2", finish_reason: "length" }],
      usage: { completion_tokens: 3 },
      error: null,
    });
    expect(answer.body.expires_at - answer.body.created).toBe(86_400);
    expect((await call("DELETE", `/${body.id}`)).status).toBe(200);
    expect((await call("GET", `/${body.id}`)).status).toBe(404);
  });

  it("are started by the official client, which polls them", async () => {
    const openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey });
    const headers = { Prefer: "respond-async" };
    const { id } = await openai.completions.create(hello, { headers });
    expect((await ended(id)).body.status).toBe("completed");
  });

  it("are cancelled, and free their slot", async () => {
    server.dispatch.script.tokenDelayMs = 20;
    const { body } = await start({ max_tokens: 5_000 });
    await eventually(() => server.dispatch.running === 1);
    const cancelled = await call("DELETE", `/${body.id}`);
    expect([cancelled.status, cancelled.body.status]).toEqual([200, "cancelled"]);
    expect(server.dispatch.running).toBe(0);
    expect((await call("GET", `/${body.id}`)).body.status).toBe("cancelled");
  });

  it("fail with the error of the call", async () => {
    server.dispatch.script.refuseWith = new AppError("overloaded", "no room");
    const { body } = await start();
    const answer = await ended(body.id);
    expect(answer.body).toMatchObject({ status: "failed", error: { code: "overloaded" } });
  });

  it("are another key's for no other one", async () => {
    const { body } = await start();
    const { text: key } = await server.addKey();
    expect((await call("GET", `/${body.id}`, { key })).status).toBe(404);
    expect((await call("DELETE", `/${body.id}`, { key })).status).toBe(404);
  });
});

describe("completions: Idempotency-Key", () => {
  it("starts one completion, and a retry gets the same answer, also at its end", async () => {
    const name = { "idempotency-key": "retry-1" };
    const calls = server.dispatch.calls.length;
    const all = await Promise.all([start({}, name), start({}, name), start({}, name)]);
    const first = all.find(({ headers }) => !headers.has("idempotency-replayed"));
    for (const { status, body } of all) {
      expect(status).toBe(202);
      expect(body).toEqual(first?.body);
    }
    await ended(first?.body.id ?? "");
    const late = await start({}, name);
    expect(late.headers.get("idempotency-replayed")).toBe("true");
    expect(late.body).toEqual(first?.body);
    expect(server.dispatch.calls.length).toBe(calls + 1);
  });

  it("is 422 for another request, 400 if malformed; streams and bad fields are 400", async () => {
    const name = { "idempotency-key": "retry-2" };
    await start({}, name);
    expect((await start({ max_tokens: 4 }, name)).status).toBe(422);
    expect((await start({}, { "idempotency-key": "a b" })).status).toBe(400);
    const streamed = await start({ stream: true });
    expect([streamed.status, streamed.body.error?.param]).toEqual([400, "stream"]);
    const bad = await start({ max_tokens: -1 });
    expect([bad.status, bad.body.error?.param]).toEqual([400, "max_tokens"]);
  });
});
