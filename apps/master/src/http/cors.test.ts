// holds: api-cors

import { afterAll, beforeAll, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

const PAGE = "https://app.example.com";
let server: TestMaster;
let closed: TestMaster;
beforeAll(async () => {
  server = await startTestMaster({ corsOrigins: [PAGE] });
  closed = await startTestMaster();
});
afterAll(() => Promise.all([server.master.close(), closed.master.close()]));

function preflight({ url }: TestMaster, origin: string): Promise<Response> {
  return fetch(`${url}/api/v1/chat/completions`, {
    method: "OPTIONS",
    headers: {
      origin,
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization,content-type",
    },
  });
}

it("preflight: answered for a listed origin, without a key", async () => {
  const { status, headers } = await preflight(server, PAGE);
  expect(status).toBe(204);
  expect(headers.get("access-control-allow-origin")).toBe(PAGE);
  expect(headers.get("access-control-allow-methods")).toContain("POST");
  expect(headers.get("access-control-allow-headers")).toBe("authorization,content-type");
});

it("preflight: refused for other origins, and if none is listed", async () => {
  for (const [target, origin] of [
    [server, "https://evil.example.com"],
    [closed, PAGE],
  ] as const) {
    const { status, headers } = await preflight(target, origin);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(headers.get("access-control-allow-origin")).toBeNull();
  }
});

it("pages without an origin: are refused, and no page may send cookies", async () => {
  const open = await startTestMaster({ corsOrigins: ["*"] });
  const replies = [await preflight(server, "null"), await preflight(open, "null")];
  await open.master.close();
  const allowed = replies.map(({ headers }) => headers.get("access-control-allow-origin"));
  expect(allowed).toEqual([null, "*"]);
  for (const { headers } of replies) {
    expect(headers.get("access-control-allow-credentials")).toBeNull();
  }
});

it("responses: answers, errors and streams carry the origin", async () => {
  const body = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };
  for (const [more, key] of [
    [{}, server.adminKey],
    [{ stream: true }, server.adminKey],
    [{}, "sk-wrong"],
  ] as const) {
    const reply = await fetch(`${server.url}/api/v1/chat/completions`, {
      method: "POST",
      headers: { origin: PAGE, authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ ...body, ...more }),
    });
    await reply.text();
    expect(reply.headers.get("access-control-allow-origin")).toBe(PAGE);
    expect(reply.headers.get("access-control-expose-headers")).toContain("x-request-id");
  }
});
