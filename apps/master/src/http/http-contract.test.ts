// holds: api-errors

import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import type { Type } from "@nestjs/common";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat, send } from "../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";
import { ApiModule } from "../api/api.module.ts";
import { InferenceModule } from "../inference/inference.module.ts";
import { listRoutes } from "./route-table.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster({
    maxBodyBytes: 100_000,
    fixedTimes: { headersTimeoutMs: 400, requestTimeoutMs: 800 },
  });
});
afterAll(() => server.master.close());

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };
const chatPath = "/api/v1/chat/completions";

function raw(path: string, init: RequestInit): Promise<Response> {
  return fetch(server.url + path, init);
}

/** After a hundred calls without a key all others of the second are refused for their number. */
async function anonymousReply(path: string, init: RequestInit): Promise<Response> {
  let reply = await raw(path, init);
  while (reply.status === 429) {
    await sleep(1_000);
    reply = await raw(path, init);
  }
  return reply;
}

function authorized(more: Record<string, string> = {}): Record<string, string> {
  return {
    authorization: `Bearer ${server.adminKey}`,
    "content-type": "application/json",
    ...more,
  };
}

async function errorOf(reply: Response): Promise<Record<string, unknown>> {
  const body = (await reply.json()) as { error: Record<string, unknown> };
  for (const key of ["message", "type", "param", "code", "request_id", "retryable"]) {
    expect(body.error).toHaveProperty(key);
  }
  expect(reply.headers.get("x-request-id")).toBe(body.error["request_id"]);
  return body.error;
}

// holds: api-long-prompt-others
describe("HTTP: malformed requests", () => {
  it("do not include those with a byte order mark", async () => {
    const body = `\uFEFF${JSON.stringify(hello)}`;
    const reply = await raw(chatPath, { method: "POST", headers: authorized(), body });
    expect(reply.status).toBe(200);
  });

  it.each([
    ["bad JSON", "{", "invalid_json"],
    ["an empty body", "", "invalid_json"],
    ["an array", "[]", "invalid_json"],
    ["a string", '"hi"', "invalid_json"],
    ["null", "null", "invalid_json"],
    ["too deep a body", `{"a":${"[".repeat(70)}${"]".repeat(70)}}`, "invalid_json"],
    ["a body of too many items", `{"a":[${"[],".repeat(33_000)}0]}`, "invalid_json"],
    ["no fields", "{}", "missing_required_parameter"],
  ])("%s is 400", async (_what, body, code) => {
    const reply = await raw(chatPath, { method: "POST", headers: authorized(), body });
    expect(reply.status).toBe(400);
    expect((await errorOf(reply))["code"]).toBe(code);
  });

  it("without a body and its type are 400", async () => {
    const headers = { authorization: `Bearer ${server.adminKey}` };
    for (const path of [chatPath, "/api/v1/embeddings", "/api/v1/responses"]) {
      const reply = await raw(path, { method: "POST", headers });
      expect(reply.status, path).toBe(400);
      expect((await errorOf(reply))["code"]).toBe("invalid_json");
    }
  });

  it("that are not UTF-8 are 400", async () => {
    const body = Buffer.concat([
      Buffer.from('{"model":"'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('"}'),
    ]);
    const reply = await raw(chatPath, { method: "POST", headers: authorized(), body });
    expect(reply.status).toBe(400);
    expect((await errorOf(reply))["message"]).toContain("UTF-8");
  });

  it("do not include those with brackets inside strings", async () => {
    const content = `${"[{".repeat(500)} \\" \\\\`;
    const reply = await postChat(server, { ...hello, messages: [{ role: "user", content }] });
    expect(reply.status).toBe(200);
  });

  it("over the body limit are 413, declared or chunked", async () => {
    const body = JSON.stringify({ ...hello, user: "x".repeat(200_000) });
    const declared = await raw(chatPath, { method: "POST", headers: authorized(), body });
    expect(declared.status).toBe(413);
    expect((await errorOf(declared))["code"]).toBe("request_too_large");
    const stream = new Blob([body]).stream();
    const init = { method: "POST", headers: authorized(), body: stream, duplex: "half" };
    const chunked = await raw(chatPath, init as RequestInit);
    expect(chunked.status).toBe(413);
  });

  it("of another content type, or of none, are 415", async () => {
    const headers = authorized({ "content-type": "text/plain" });
    const reply = await raw(chatPath, { method: "POST", headers, body: "{}" });
    expect(reply.status).toBe(415);
    expect((await errorOf(reply))["code"]).toBe("unsupported_media_type");
  });

  it("with a compressed body are 415, by their encoding", async () => {
    const body = JSON.stringify(hello);
    const gzip = authorized({ "content-encoding": "gzip" });
    const reply = await raw(chatPath, { method: "POST", headers: gzip, body });
    expect(reply.status).toBe(415);
    const error = await errorOf(reply);
    expect(error["code"]).toBe("unsupported_media_type");
    expect(error["message"]).toContain("Content-Encoding: gzip");
    const identity = authorized({ "content-encoding": "identity" });
    const plain = await raw(chatPath, { method: "POST", headers: identity, body });
    expect(plain.status).toBe(200);
  });

  it("with a charset in the content type are JSON", async () => {
    const headers = authorized({ "content-type": "application/json; charset=utf-8" });
    const reply = await raw(chatPath, { method: "POST", headers, body: JSON.stringify(hello) });
    expect(reply.status).toBe(200);
  });

  it("whose URL cannot be decoded are 400 in the API's shape", async () => {
    const models = await raw("/api/v1/models/%E0%A4%A", { headers: authorized() });
    expect(models.status).toBe(400);
    expect((await errorOf(models))["message"]).toContain("percent-encode");
    const keys = await raw("/api/v1/keys/%E0%A4%A", { headers: { "x-request-id": "mine" } });
    expect(keys.status).toBe(400);
    expect(keys.headers.get("content-type")).toContain("application/problem+json");
    expect(await keys.json()).toMatchObject({ code: "invalid_value", request_id: "mine" });
  });

  it("with a path of kilobytes are refused, and it is not echoed", async () => {
    for (const [path, status, why] of [
      [`/api/v1/models/${"a".repeat(9_000)}`, 400, "more than 256 characters"],
      [`/${"a/".repeat(4_000)}`, 404, "Unknown route"],
    ] as const) {
      const reply = await raw(path, { headers: authorized() });
      expect(reply.status).toBe(status);
      const { message } = await errorOf(reply);
      expect(message).toContain(why);
      expect(String(message).length).toBeLessThan(400);
    }
  });

  it("for an unknown route are 404, with a wrong method 405 with Allow", async () => {
    const unknown = await raw("/api/v1/nonsense", { headers: authorized() });
    expect(unknown.status).toBe(404);
    expect((await errorOf(unknown))["code"]).toBe("not_found");
    const wrong = await raw(chatPath, { headers: authorized() });
    expect(wrong.status).toBe(405);
    expect(wrong.headers.get("allow")).toBe("POST");
    const models = await raw("/api/v1/models", {
      method: "PUT",
      headers: authorized(),
      body: "{}",
    });
    expect(models.status).toBe(405);
    expect(models.headers.get("allow")?.split(", ").sort()).toEqual(["GET", "POST"]);
  });

  it.each([
    ["POST", "/v1/chat/completions", "It is /api/v1/chat/completions here: a base URL ends in"],
    ["POST", "/chat/completions", "It is /api/v1/chat/completions here"],
    ["POST", "/api/v1/chat/completions/chat/completions", "It is /api/v1/chat/completions here"],
    ["GET", "/api/v1/api/v1/models", "It is /api/v1/models here"],
    ["GET", "/openai/v1/models/FamilyA-1-2B", "It is /api/v1/models/FamilyA-1-2B here"],
    ["GET", "/api/v1/healthz", "It is /healthz here."],
    ["POST", "/v1/images/edits", "All of the API lies under /api/v1. GET /api/v1/endpoints lists"],
    [
      "POST",
      "/api/v1/images/edits",
      "/api/v1/images/edits. GET /api/v1/endpoints lists the routes.",
    ],
    ["GET", `/v1/models/${"a".repeat(9_000)}`, `It is /api/v1/models/${"a".repeat(100)}`],
  ])("%s %s is 404 and says where that is", async (method, path, hint) => {
    const reply = await raw(path, { method });
    expect(reply.status).toBe(404);
    const message = String((await errorOf(reply))["message"]);
    expect(message).toContain(hint);
    expect(message.length).toBeLessThan(700);
  });

  it("for an unknown model are 404 model_not_found", async () => {
    const reply = await postChat(server, { ...hello, model: "nope" });
    expect(reply.status).toBe(404);
    expect(await errorOf(reply)).toMatchObject({ code: "model_not_found", param: "model" });
  });

  it("that are not HTTP are answered and closed", async () => {
    const text = await talk("GARBAGE\r\n\r\n");
    expect(text).toMatch(/^HTTP\/1.1 400 Bad Request/);
    expect(text).toContain('"code":"invalid_value"');
  });

  it.each([
    ["an unknown expectation", "GET /health", "host: a\r\nexpect: foo\r\n", 417],
    ["no Host header", "GET /health", "", 400],
    ["a tunnel", "CONNECT a:1", "host: a\r\n", 405],
  ])(
    "%s is answered in the API's shape, with the request's id",
    async (_what, line, more, status) => {
      const id = "x-request-id: mine-1\r\n";
      const text = await talk(`${line} HTTP/1.1\r\n${more}${id}connection: close\r\n\r\n`);
      expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      expect(text.toLowerCase()).toContain(id);
      const { error } = JSON.parse(text.slice(text.indexOf("\r\n\r\n")));
      expect(error).toMatchObject({ request_id: "mine-1", type: "invalid_request_error" });
    },
  );

  it("with an expectation on an orchestration path get a problem of that status", async () => {
    const head = "GET /api/v1/jobs HTTP/1.1\r\nhost: a\r\nexpect: foo\r\nconnection: close\r\n\r\n";
    const text = await talk(head);
    expect(text).toMatch(/^HTTP\/1.1 417 .*application\/problem\+json.*"status":417/s);
  });

  it("in HTTP/1.0 need no Host header, and 100-continue is supported", async () => {
    expect(await talk("GET /health HTTP/1.0\r\n\r\n")).toMatch(/^HTTP\/1.1 200/);
    const head =
      "GET /health HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n";
    expect(await talk(head)).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200/);
  });

  it("with headers that are too large are 413", async () => {
    const text = await talk(`GET /health HTTP/1.1\r\nhost: a\r\nx: ${"y".repeat(20_000)}\r\n\r\n`);
    expect(text).toMatch(/^HTTP\/1.1 413/);
  });
});

// holds: api-slow-client
describe("HTTP: slow clients", () => {
  it("without complete headers are cut off with 408", async () => {
    expect(await talk("POST /x HTTP/1.1\r\nhost: a\r\n")).toMatch(/^HTTP\/1.1 408/);
  });

  it("without a complete body are cut off", async () => {
    const head = `POST ${chatPath} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${server.adminKey}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`;
    expect(await talk(head)).toMatch(/^HTTP\/1.1 408/);
  });
});

describe("HTTP: keys", () => {
  const typo = (text: string): string => text.slice(0, -1) + (text.endsWith("0") ? "1" : "0");

  it.each<[string, (server: TestMaster) => Record<string, string>, RegExp]>([
    ["no header", () => ({}), /No API key/],
    ["another scheme", () => ({ authorization: "Basic abc" }), /Bearer/],
    ["another shape", () => ({ authorization: "Bearer sk-123" }), /form/],
    ["a typo", ({ adminKey }) => ({ authorization: `Bearer ${typo(adminKey)}` }), /mistyped/],
  ])("%s is 401 and says so", async (_what, headers, message) => {
    const body = JSON.stringify(hello);
    const more = { ...headers(server), "content-type": "application/json" };
    const reply = await raw(chatPath, { method: "POST", headers: more, body });
    expect(reply.status).toBe(401);
    expect(reply.headers.get("www-authenticate")).toContain("Bearer");
    const error = await errorOf(reply);
    expect(error["code"]).toBe("invalid_api_key");
    expect(error["message"]).toMatch(message);
  });

  // holds: key-permissions
  it("without a permission are 403, naming it", async () => {
    const { text } = await server.addKey({ scopes: ["models:read"] });
    const reply = await postChat(server, hello, { key: text });
    expect(reply.status).toBe(403);
    expect((await errorOf(reply))["message"]).toContain("inference:create");
  });

  // holds: key-models
  it("are restricted to their models", async () => {
    const { text } = await server.addKey({ models: ["other"] });
    expect((await postChat(server, hello, { key: text })).status).toBe(403);
    const list = await send(server, "GET", "/api/v1/models", undefined, { key: text });
    expect(await list.json()).toEqual({ object: "list", data: [] });
  });

  it("are checked before the body is parsed", async () => {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: "{" };
    expect((await raw(chatPath, init)).status).toBe(401);
  });
});

describe("HTTP: request ids", () => {
  it("are the client's own if that is safe to echo", async () => {
    const own = await raw("/health", { headers: { "x-request-id": "my-id.1" } });
    expect(own.headers.get("x-request-id")).toBe("my-id.1");
    const unsafe = await raw("/health", { headers: { "x-request-id": 'a"b<script>' } });
    expect(unsafe.headers.get("x-request-id")).toMatch(/^req_/);
    const first = await raw("/nope", {});
    const second = await raw("/nope", {});
    expect(first.headers.get("x-request-id")).not.toBe(second.headers.get("x-request-id"));
  });
});

describe("HTTP: every route", () => {
  const controllersOf = (module: Type): Type[] => Reflect.getMetadata("controllers", module);
  const routes = listRoutes([ApiModule, InferenceModule].flatMap(controllersOf));

  // holds: key-permissions
  it("declares a permission and a summary", () => {
    expect(routes.length).toBeGreaterThan(15);
    expect(routes.filter(({ permission }) => permission === undefined)).toEqual([]);
    expect(routes.filter(({ summary }) => summary === "")).toEqual([]);
  });

  // holds: key-permissions
  it.each(routes)("$method $path admits exactly callers with $permission", async (route) => {
    const path = route.path.replace(":id", "none");
    const init = { method: route.method, headers: { "content-type": "application/json" } };
    const anonymous = await anonymousReply(path, init);
    if (route.permission === "public") {
      // Without a body, a route that reads one says what is missing.
      if (route.method === "GET") expect(anonymous.status).toBeLessThan(400);
      else expect(anonymous.status).toBe(400);
      return;
    }
    expect(anonymous.status).toBe(401);
    if (route.permission === "authenticated") return;
    const without = await server.addKey({ scopes: ["nothing:at-all"] });
    const denied = await send(server, route.method, path, undefined, { key: without.text });
    expect(denied.status).toBe(403);
    const granted = await server.addKey({ scopes: [route.permission as string] });
    const allowed = await send(server, route.method, path, undefined, { key: granted.text });
    expect([401, 403]).not.toContain(allowed.status);
  });
});

describe("HTTP: limits", () => {
  it("admit just the burst of 200 concurrent calls, and give the others a time", async () => {
    const { text } = await server.addKey({ limits: { requestsPerMinute: 50 } });
    const startMs = performance.now();
    const replies = await Promise.all(
      Array.from({ length: 200 }, () => postChat(server, hello, { key: text })),
    );
    // One more call is admitted per 1.2 s of the test's duration.
    const refilled = Math.ceil((performance.now() - startMs) / 1_200);
    const passed = replies.filter(({ status }) => status === 200).length;
    expect(passed).toBeGreaterThanOrEqual(50);
    expect(passed).toBeLessThanOrEqual(50 + refilled);
    const refused = replies.filter(({ status }) => status === 429);
    const others = replies.filter(({ status }) => status !== 200 && status !== 429);
    expect(await Promise.all(others.map((reply) => reply.text()))).toEqual([]);
    expect(refused).toHaveLength(200 - passed);
    for (const reply of [replies[0], refused[0]] as Response[]) {
      for (const kind of ["limit", "remaining", "reset"]) {
        expect(reply.headers.get(`x-ratelimit-${kind}-requests`)).toMatch(/^[\d.hms]+$/);
        expect(reply.headers.get(`x-ratelimit-${kind}-tokens`)).toMatch(/^[\d.hms]+$/);
      }
    }
    expect(Number(refused[0]?.headers.get("retry-after-ms"))).toBeGreaterThan(0);
    expect(refused[0]?.headers.get("x-should-retry")).toBe("true");
    expect((await errorOf(refused[0] as Response))["code"]).toBe("rate_limit_exceeded");
  });

  // holds: api-slow-client
  it("on the time of a request exclude the master's own stalls", async () => {
    const replies = Array.from({ length: 50 }, () => postChat(server, hello));
    // Blocks the event loop after the first connections are accepted and before they are read.
    setImmediate(() => setImmediate(() => busyFor(1_300)));
    const statuses = (await Promise.all(replies)).map(({ status }) => status);
    expect(statuses).toEqual(Array(50).fill(200));
  });

  // holds: key-limits
  it("never overspend tokens under 100 concurrent calls", async () => {
    const { text } = await server.addKey({ limits: { tokensPerMinute: 2000 } });
    const before = server.rows.length;
    const startMs = performance.now();
    const bodies = [
      { ...hello, max_tokens: 50 },
      { ...hello, max_tokens: 100, stream: true },
      hello,
    ];
    const replies = await Promise.all(
      Array.from({ length: 99 }, (_, i) => postChat(server, bodies[i % 3], { key: text })),
    );
    await Promise.all(replies.map((reply) => reply.text()));
    const rows = server.rows.slice(before);
    const spent = rows.reduce((sum, row) => sum + row.promptTokens + row.completionTokens, 0);
    expect(spent).toBeGreaterThan(0);
    // One more call is admitted per 30 ms of the test's duration.
    expect(spent).toBeLessThanOrEqual(2000 + Math.ceil((performance.now() - startMs) / 30));
    expect(replies.some(({ status }) => status === 429)).toBe(true);
  });

  it("refuse a call that can never fit without a retry time", async () => {
    const { text } = await server.addKey({ limits: { tokensPerMinute: 100 } });
    const reply = await postChat(server, { ...hello, max_tokens: 101 }, { key: text });
    expect(reply.status).toBe(429);
    expect(reply.headers.get("x-should-retry")).toBe("false");
    expect(reply.headers.get("retry-after")).toBeNull();
  });

  // holds: key-limits
  it("bound concurrent calls per key, and release the slots", async () => {
    const { text } = await server.addKey({ limits: { concurrency: 2 } });
    server.dispatch.script.tokenDelayMs = 20;
    const running = [1, 2].map(() => postChat(server, { ...hello, max_tokens: 10 }, { key: text }));
    await eventually(() => server.dispatch.running === 2);
    expect((await postChat(server, hello, { key: text })).status).toBe(429);
    server.dispatch.script = {};
    await Promise.all(running);
    expect((await postChat(server, hello, { key: text })).status).toBe(200);
  });

  it("bound concurrent calls over all keys with 503 and Retry-After", async () => {
    const small = await startTestMaster({ maxCalls: 2 });
    small.dispatch.script.tokenDelayMs = 20;
    const running = [1, 2].map(() => postChat(small, { ...hello, max_tokens: 10 }));
    await eventually(() => small.dispatch.running === 2);
    const refused = await postChat(small, hello);
    expect(refused.status).toBe(503);
    expect(refused.headers.get("retry-after")).toBe("1");
    for (const reply of await Promise.all(running)) expect(reply.status).toBe(200);
    expect((await postChat(small, hello)).status).toBe(200);
    await small.master.close();
  });
});

/** Sends bytes on a bare socket and collects the answer until the server closes. */
function talk(bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    let text = "";
    socket.on("data", (data) => {
      text += data.toString();
    });
    socket.on("close", () => resolve(text));
    socket.on("error", reject);
  });
}

function busyFor(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}
