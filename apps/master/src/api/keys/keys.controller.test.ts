// holds: key-lifecycle

import type { GenerateRequest } from "@heddle/contracts/engine";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };

async function create(body: Record<string, unknown>) {
  const reply = await send(server, "POST", "/api/v1/keys", body);
  expect(reply.status).toBe(200);
  return (await reply.json()) as Record<string, unknown> & { id: string; key: string };
}

describe("API keys over HTTP", () => {
  it("are shown once, kept as a hash, and work at once with least privilege", async () => {
    const made = await create({ name: "ci" });
    expect(made).toMatchObject({
      object: "api_key",
      name: "ci",
      status: "active",
      scopes: ["inference:create", "models:read", "files:*", "batches:*"],
      models: [],
      limits: { requests_per_minute: null, tokens_per_minute: null, concurrency: null },
      expires_at: null,
      last_used_at: null,
    });
    expect(made.key).toMatch(/^hdl_live_/);
    expect((await postChat(server, hello, { key: made.key })).status).toBe(200);
    const keys = await send(server, "GET", "/api/v1/keys", undefined, { key: made.key });
    expect(keys.status).toBe(403);
    const list = await (await send(server, "GET", "/api/v1/keys")).text();
    expect(list).not.toContain(made.key);
    expect(list).not.toContain(server.control.state.keys.get(made.id)?.hash);
    const listed = (JSON.parse(list) as { data: Record<string, unknown>[] }).data;
    expect(listed.find(({ id }) => id === made.id)?.["last_used_at"]).toMatch(/^\d{4}-/);
  });

  // holds: key-models
  it("may name unregistered models, which their answers list", async () => {
    const models = ["FamilyA-1-2B", "FamilyA-1-2b"];
    const expected = { models, unknown_models: ["FamilyA-1-2b"] };
    const made = await create({ name: "mistyped", models });
    expect(made).toMatchObject(expected);
    const { data } = (await (await send(server, "GET", "/api/v1/keys?limit=1")).json()) as {
      data: object[];
    };
    expect(data[0]).toMatchObject({ id: made.id, ...expected });
    expect((await postChat(server, hello, { key: made.key })).status).toBe(200);
  });

  it("stop working the moment they are revoked", async () => {
    const made = await create({ name: "short-lived" });
    expect((await postChat(server, hello, { key: made.key })).status).toBe(200);
    const revoked = await send(server, "DELETE", `/api/v1/keys/${made.id}`);
    expect(await revoked.json()).toMatchObject({ status: "revoked", id: made.id });
    const reply = await postChat(server, hello, { key: made.key });
    expect(reply.status).toBe(401);
    expect(await reply.text()).toContain("revoked");
  });

  // holds: key-last-admin
  it("are not revoked if that would leave no key with all permissions", async () => {
    const alone = await startTestMaster();
    try {
      const [id = ""] = alone.control.state.keys.keys();
      const refused = await send(alone, "DELETE", `/api/v1/keys/${id}`);
      expect(refused.status).toBe(409);
      expect(await refused.json()).toMatchObject({
        code: "conflict",
        detail: expect.stringContaining("create another"),
      });
      expect((await send(alone, "GET", "/api/v1/keys")).status).toBe(200);
      await alone.addKey();
      expect((await send(alone, "DELETE", `/api/v1/keys/${id}`)).status).toBe(200);
    } finally {
      await alone.master.close();
    }
  });

  // holds: key-rotation
  it("are rotated: both work for the overlap, then only the new one", async () => {
    const limits = { requests_per_minute: 50 };
    const made = await create({ name: "app", models: ["FamilyA-1-2B"], limits });
    const rotate = (id: string, body?: object) =>
      send(server, "POST", `/api/v1/keys/${id}/rotate`, body ?? {});
    const before = Date.now();
    const reply = await rotate(made.id, { overlap_seconds: 3600 });
    expect(reply.status).toBe(200);
    const next = (await reply.json()) as typeof made & { replaces: Record<string, string> };
    expect(next).toMatchObject({
      name: "app",
      models: ["FamilyA-1-2B"],
      limits,
      status: "active",
      expires_at: null,
      replaces: { id: made.id, status: "active" },
    });
    expect(next.id).not.toBe(made.id);
    const endsMs = Date.parse(next.replaces["expires_at"] ?? "");
    expect(endsMs).toBeGreaterThanOrEqual(before + 3_600_000);
    expect(endsMs).toBeLessThanOrEqual(Date.now() + 3_600_000);
    expect((await postChat(server, hello, { key: made.key })).status).toBe(200);
    expect((await postChat(server, hello, { key: next.key })).status).toBe(200);

    const last = (await (await rotate(next.id, { overlap_seconds: 0 })).json()) as typeof made;
    expect(await (await postChat(server, hello, { key: next.key })).text()).toContain("expired");
    expect((await postChat(server, hello, { key: last.key })).status).toBe(200);
  });

  it("are rotated once, and show predecessor and successor", async () => {
    const made = await create({ name: "raced" });
    const path = `/api/v1/keys/${made.id}/rotate`;
    const replies = await Promise.all(
      Array.from({ length: 5 }, () => send(server, "POST", path, {})),
    );
    const statuses = replies.map(({ status }) => status).sort((a, b) => a - b);
    expect(statuses).toEqual([200, 409, 409, 409, 409]);
    const won = replies.find(({ status }) => status === 200);
    const next = (await won?.json()) as typeof made;
    expect(next).toMatchObject({ rotated_from: made.id, rotated_to: null });
    expect(next).toMatchObject({ replaces: { id: made.id, rotated_to: next.id } });
    const lost = replies.find(({ status }) => status === 409);
    expect(await lost?.text()).toContain(`the key ${next.id} has taken its place`);
    const listed = (await (await send(server, "GET", "/api/v1/keys")).json()) as {
      data: Record<string, unknown>[];
    };
    expect(listed.data.find(({ id }) => id === made.id)).toMatchObject({ rotated_to: next.id });
    // Once the new one is revoked, another is allowed.
    await send(server, "DELETE", `/api/v1/keys/${next.id}`);
    expect((await send(server, "POST", path, {})).status).toBe(200);
  });

  // holds: key-rotation
  it("are rotated once by a repeated request with an Idempotency-Key", async () => {
    const made = await create({ name: "retried" });
    const rotate = async () => {
      const reply = await fetch(`${server.url}/api/v1/keys/${made.id}/rotate`, {
        method: "POST",
        headers: { authorization: `Bearer ${server.adminKey}`, "idempotency-key": "rotation-1" },
      });
      const body = (await reply.json()) as { id: string; key: string };
      return { status: reply.status, replayed: reply.headers.get("idempotency-replayed"), body };
    };
    const [first, again] = [await rotate(), await rotate()];
    expect(first).toMatchObject({ status: 200, replayed: null });
    expect(again).toMatchObject({ status: 200, replayed: "true", body: first.body });
  });

  it("are not rotated if expired, unknown or more powerful than the caller's", async () => {
    const rotate = (id: string, body: object, key?: string) =>
      send(server, "POST", `/api/v1/keys/${id}/rotate`, body, { key: key ?? server.adminKey });
    const made = await create({ name: "gone" });
    await send(server, "DELETE", `/api/v1/keys/${made.id}`);
    expect((await rotate(made.id, {})).status).toBe(409);
    const { id: expired } = await server.addKey({ expiresAtMs: Date.now() - 1 });
    expect((await rotate(expired, {})).status).toBe(409);
    expect((await rotate("nothere0", {})).status).toBe(404);
    expect((await rotate(expired, { overlap_seconds: -1 })).status).toBe(400);
    expect((await rotate(expired, { overlap: 1 })).status).toBe(400);
    const { id: root } = await server.addKey();
    const { text: lesser } = await server.addKey({ scopes: ["cluster:admin"] });
    expect((await rotate(root, {}, lesser)).status).toBe(403);
    // Without a body the overlap is a day, at most until the old key expires.
    const { id: brief } = await server.addKey({ expiresAtMs: Date.now() + 60_000 });
    const reply = await send(server, "POST", `/api/v1/keys/${brief}/rotate`);
    const next = (await reply.json()) as { replaces: { expires_at: string } };
    expect(Date.parse(next.replaces.expires_at)).toBeLessThanOrEqual(Date.now() + 60_000);
  });

  it("expire at their time", async () => {
    const made = await create({
      name: "e",
      expires_at: new Date(Date.now() + 60_000).toISOString(),
    });
    expect((await postChat(server, hello, { key: made.key })).status).toBe(200);
    const { text } = await server.addKey({ expiresAtMs: Date.now() - 1 });
    expect(await (await postChat(server, hello, { key: text })).text()).toContain("expired");
  });

  it("carry their models, limits and environment", async () => {
    const limits = { requests_per_minute: 5, tokens_per_minute: 1000, concurrency: 2 };
    const made = await create({ name: "l", models: ["FamilyA-1-2B"], limits, environment: "test" });
    expect(made).toMatchObject({ models: ["FamilyA-1-2B"], limits });
    expect(made.key).toMatch(/^hdl_test_/);
    const reply = await postChat(server, hello, { key: made.key });
    expect(reply.headers.get("x-ratelimit-limit-requests")).toBe("5");
    expect(reply.headers.get("x-ratelimit-limit-tokens")).toBe("1000");
  });

  it("make calls deterministic that do not say otherwise, also once rotated", async () => {
    const made = await create({ name: "d", deterministic: true });
    const rotated = await send(server, "POST", `/api/v1/keys/${made.id}/rotate`, {});
    const next = (await rotated.json()) as typeof made;
    expect([made, next]).toMatchObject([{ deterministic: true }, { deterministic: true }]);
    const asked = async (key: string, more: object) => {
      await (await postChat(server, { ...hello, ...more }, { key })).text();
      const request = server.dispatch.calls.at(-1)?.request as GenerateRequest | undefined;
      return request?.deterministic;
    };
    expect(await asked(made.key, {})).toBe(true);
    expect(await asked(next.key, { seed: 4 })).toBe(true);
    expect(await asked(next.key, { deterministic: false })).toBe(false);
    expect(await asked(server.adminKey, {})).toBeUndefined();
  });

  it.each<[string, string, Record<string, unknown>]>([
    ["missing_required_parameter", "#/name", {}],
    ["invalid_value", "#/name", { name: "" }],
    ["invalid_value", "#/scopes/0", { name: "a", scopes: ["Everything!"] }],
    ["invalid_value", "#/limits/concurrency", { name: "a", limits: { concurrency: 0 } }],
    ["invalid_value", "#/limits/per_day", { name: "a", limits: { per_day: 1 } }],
    ["invalid_value", "#/bogus", { name: "a", bogus: 1 }],
    ["invalid_value", "#/expires_at", { name: "a", expires_at: "tomorrow" }],
    ["invalid_value", "#/expires_at", { name: "a", expires_at: "2020-01-01T00:00:00Z" }],
  ])("%s at %s is problem+json: %j", async (code, pointer, body) => {
    const reply = await send(server, "POST", "/api/v1/keys", body);
    expect(reply.status).toBe(400);
    expect(reply.headers.get("content-type")).toContain("application/problem+json");
    expect(await reply.json()).toMatchObject({
      type: `urn:heddle:error:${code}`,
      title: "Bad Request",
      status: 400,
      code,
      errors: [{ pointer, code }],
      instance: "/api/v1/keys",
      request_id: reply.headers.get("x-request-id"),
      retryable: false,
    });
  });

  it("have all faults of a body reported at once", async () => {
    const reply = await send(server, "POST", "/api/v1/keys", { name: 7, scopes: [] });
    const { errors } = (await reply.json()) as { errors: { pointer: string }[] };
    expect(errors.map(({ pointer }) => pointer)).toEqual(["#/name", "#/scopes"]);
  });

  it("are refused with a scope that no route uses, listing the valid ones", async () => {
    const body = { name: "typo", scopes: ["jobs:read", "keys:admin"] };
    const reply = await send(server, "POST", "/api/v1/keys", body);
    expect(reply.status).toBe(400);
    const { errors } = (await reply.json()) as { errors: { pointer: string; detail: string }[] };
    expect(errors).toMatchObject([{ pointer: "#/scopes/1" }]);
    expect(errors[0]?.detail).toContain("jobs:cancel");
  });

  it("with all permissions are created only by such a key", async () => {
    const { text } = await server.addKey({ scopes: ["cluster:admin"] });
    const body = { name: "root", scopes: ["*"] };
    const denied = await send(server, "POST", "/api/v1/keys", body, { key: text });
    expect(denied.status).toBe(403);
    expect((await send(server, "POST", "/api/v1/keys", body)).status).toBe(200);
  });

  it("are listed in pages, newest first, each once", async () => {
    for (let i = 0; i < 5; i++) await create({ name: `page ${i}` });
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query: string = cursor ? `&cursor=${cursor}` : "";
      const reply = await send(server, "GET", `/api/v1/keys?limit=2${query}`);
      const page = (await reply.json()) as { data: { id: string }[]; next_cursor: string | null };
      expect(page.data.length).toBeLessThanOrEqual(2);
      seen.push(...page.data.map(({ id }) => id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    expect(seen).toEqual([...server.control.state.keys.keys()].reverse());
    expect((await send(server, "GET", "/api/v1/keys?limit=0")).status).toBe(400);
    expect((await send(server, "GET", "/api/v1/keys?cursor=abc")).status).toBe(400);
  });

  it("that do not exist are 404", async () => {
    const reply = await send(server, "DELETE", "/api/v1/keys/nothere0");
    expect(reply.status).toBe(404);
    expect(await reply.json()).toMatchObject({ code: "not_found" });
  });
});
