// holds: state-exactly-once, jobs-idempotency

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

interface Sent {
  readonly key?: string;
  readonly ifMatch?: string;
  readonly as?: string;
}

async function change(method: string, path: string, body: unknown, { key, ifMatch, as }: Sent) {
  const reply = await fetch(`${server.url}/api/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${as ?? server.adminKey}`,
      "content-type": "application/json",
      ...(key !== undefined && { "idempotency-key": key }),
      ...(ifMatch !== undefined && { "if-match": ifMatch }),
    },
    body: JSON.stringify(body),
  });
  return {
    status: reply.status,
    replayed: reply.headers.get("idempotency-replayed"),
    etag: reply.headers.get("etag"),
    body: (await reply.json()) as Record<string, unknown>,
  };
}

const MODEL = { id: "once", source: "builtin://tiny" };

describe("Idempotency-Key", () => {
  it("creates a key once, and replays its text", async () => {
    const before = server.control.state.keys.size;
    const first = await change("POST", "/keys", { name: "a" }, { key: "k-1" });
    const again = await change("POST", "/keys", { name: "a" }, { key: "k-1" });
    expect(first).toMatchObject({ status: 200, replayed: null });
    expect(again).toEqual({ ...first, replayed: "true" });
    expect(again.body["key"]).toMatch(/^hdl_live_/);
    expect(server.control.state.keys.size).toBe(before + 1);
  });

  // holds: jobs-idempotency-content
  it("compares the content of bodies, not the order of their fields", async () => {
    const limits = { requests_per_minute: 5, tokens_per_minute: 7 };
    const turned = { tokens_per_minute: 7, requests_per_minute: 5 };
    const first = await change("POST", "/keys", { name: "o", limits }, { key: "k-order" });
    expect(first.status, JSON.stringify(first.body)).toBe(200);
    const again = await change("POST", "/keys", { limits: turned, name: "o" }, { key: "k-order" });
    expect(again).toEqual({ ...first, replayed: "true" });
    const other = await change("POST", "/keys", { name: "p", limits }, { key: "k-order" });
    expect(other.status).toBe(422);
  });

  it("keeps no readable secret in the state", async () => {
    const made = await change("POST", "/keys", { name: "sealed" }, { key: "k-sealed" });
    const kept = [...server.control.snapshot()].join("\n");
    expect(kept).toContain(String(made.body["id"]));
    expect(kept).not.toContain(String(made.body["key"]));
    expect(kept).not.toContain("k-sealed");
  });

  it("registers a model once, and replays the answer unchanged", async () => {
    const first = await change("POST", "/models", MODEL, { key: "m-1" });
    await change("POST", "/models", { ...MODEL, id: "another" }, { key: "m-2" });
    expect(await change("POST", "/models", MODEL, { key: "m-1" })).toEqual({
      ...first,
      replayed: "true",
    });
  });

  it("with another body, path or precondition is 422", async () => {
    await change("POST", "/keys", { name: "b" }, { key: "k-2" });
    const body = await change("POST", "/keys", { name: "c" }, { key: "k-2" });
    expect(body).toMatchObject({ status: 422, body: { code: "unprocessable", retryable: false } });
    expect((await change("POST", "/models", MODEL, { key: "k-2" })).status).toBe(422);
    const path = "/cluster/settings/job_timeout";
    await change("PUT", path, { value: 5 }, { key: "s-1" });
    expect((await change("PUT", path, { value: 5 }, { key: "s-1", ifMatch: '"1"' })).status).toBe(
      422,
    );
  });

  it("belongs to its caller: another caller's same key is another request", async () => {
    const { text } = await server.addKey();
    const first = await change("POST", "/keys", { name: "d" }, { key: "k-3" });
    const other = await change("POST", "/keys", { name: "d" }, { key: "k-3", as: text });
    expect(other.replayed).toBeNull();
    expect(other.body["id"]).not.toBe(first.body["id"]);
  });

  it("replays a refusal of the state, and not one of the request", async () => {
    const path = "/cluster/settings/max_concurrent_jobs";
    const sent = { key: "s-2", ifMatch: '"7"' };
    expect(await change("PUT", path, { value: 5 }, sent)).toMatchObject({
      status: 412,
      replayed: null,
    });
    expect(await change("PUT", path, { value: 5 }, sent)).toMatchObject({
      status: 412,
      replayed: "true",
    });
    expect((await change("POST", "/keys", { name: "" }, { key: "k-4" })).status).toBe(400);
    expect((await change("POST", "/keys", { name: "e" }, { key: "k-4" })).status).toBe(200);
  });

  it("makes one change of many concurrent requests", async () => {
    const before = server.control.state.keys.size;
    const all = await Promise.all(
      Array.from({ length: 8 }, () => change("POST", "/keys", { name: "f" }, { key: "k-5" })),
    );
    expect(server.control.state.keys.size).toBe(before + 1);
    expect(new Set(all.map(({ body }) => body["key"])).size).toBe(1);
    expect(all.filter(({ replayed }) => replayed === null)).toHaveLength(1);
  });

  it("if empty, too long or with spaces is 400", async () => {
    for (const key of ["", "a b", "x".repeat(256)]) {
      const refused = await change("POST", "/keys", { name: "g" }, { key });
      expect(refused, key).toMatchObject({
        status: 400,
        body: { code: "invalid_value", errors: [{ pointer: "#/Idempotency-Key" }] },
      });
    }
  });
});
