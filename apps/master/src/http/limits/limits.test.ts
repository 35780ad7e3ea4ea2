// holds: key-limits

import type { LimitSettings } from "@heddle/contracts/api/limits/limits";
import { NANOS } from "@heddle/contracts/limits";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { postChat } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const MODEL = "FamilyA-1-2B";
/** Its answer has three prompt tokens and as many output tokens as it asks for. */
const ask = { model: MODEL, messages: [{ role: "user", content: "one two three" }], max_tokens: 5 };

let server: TestMaster;

beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());
afterEach(async () => {
  await set("model", MODEL, {});
  await set("project", "team", {});
});

async function set(kind: string, name: string, limits: LimitSettings, project?: string) {
  const path = `${kind}/${encodeURIComponent(name)}${project ? `?project=${project}` : ""}`;
  const reply = await fetch(`${server.url}/api/v1/limits/${path}`, {
    method: "PUT",
    headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
    body: JSON.stringify(limits),
  });
  return { status: reply.status, body: (await reply.json()) as Record<string, unknown> };
}

async function newKey(spec: object) {
  const reply = await fetch(`${server.url}/api/v1/keys`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
    body: JSON.stringify({ name: "k", ...spec }),
  });
  return (await reply.json()) as { id: string; key: string; project: string; limits: object };
}

const call = (key: string, more: object = {}) =>
  postChat({ ...server, adminKey: key }, { ...ask, ...more });

async function errorOf(reply: Response) {
  return ((await reply.json()) as { error: { code: string; message: string; type: string } }).error;
}

describe("budgets", () => {
  it("100 calls at once on a budget of 50 calls: exactly 50 pass, and none overspends", async () => {
    await set("model", MODEL, { prices: { input: 0, output: 1000 } });
    // Five tokens at a thousandth: half a hundredth for each call.
    const budget = { amount: 0.25, period: "day" };
    const { key, id } = await newKey({ limits: { budget } });
    const before = server.rows.length;
    const replies = await Promise.all(Array.from({ length: 100 }, () => call(key)));
    const passed = replies.filter(({ status }) => status === 200);
    expect(passed).toHaveLength(50);
    const refused = replies.find(({ status }) => status === 429) as Response;
    expect(refused.headers.get("x-should-retry")).toBe("false");
    expect(refused.headers.get("retry-after")).toBeNull();
    expect(refused.headers.get("x-ratelimit-remaining-tokens")).not.toBeNull();
    const error = await errorOf(refused);
    expect(error).toMatchObject({ code: "insufficient_quota", type: "insufficient_quota" });
    expect(error.message).toContain(`The budget of the API key ${id} (day) has 0 left of 0.25`);
    await Promise.all(passed.map((reply) => reply.text()));
    const costs = server.rows.slice(before).map(({ cost }) => cost);
    expect(costs.reduce((sum, cost) => sum + cost, 0)).toBe(0.25 * NANOS);
  });

  it("what a call does not use is free again; a raised budget helps at once", async () => {
    await set("model", MODEL, { prices: { input: 1000, output: 1000 } });
    const { key, id } = await newKey({ limits: { budget: { amount: 0.05, period: "month" } } });
    // A call reserves 34 thousandths by its estimate and takes 8 of them.
    expect((await call(key)).status).toBe(200);
    expect((await call(key)).status).toBe(200);
    expect((await errorOf(await call(key, { max_tokens: 20 }))).code).toBe("insufficient_quota");
    const raised = { budget: { amount: 1, period: "month" as const } };
    expect(await set("key", id, raised)).toMatchObject({ status: 200, body: { name: id } });
    expect((await call(key, { max_tokens: 20 })).status).toBe(200);
  });

  it("a rotated key continues with the budget of the first one", async () => {
    await set("model", MODEL, { prices: { input: 0, output: 1000 } });
    const { key, id } = await newKey({ limits: { budget: { amount: 0.005, period: "total" } } });
    expect((await call(key)).status).toBe(200);
    const reply = await fetch(`${server.url}/api/v1/keys/${id}/rotate`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    const next = (await reply.json()) as { key: string };
    expect((await errorOf(await call(next.key))).code).toBe("insufficient_quota");
  });

  it("a call without max_tokens gets what its budget affords", async () => {
    await set("model", MODEL, { prices: { input: 0, output: 1000 } });
    const { key } = await newKey({ limits: { budget: { amount: 0.002, period: "total" } } });
    const reply = await call(key, { max_tokens: undefined });
    const { usage } = (await reply.json()) as { usage: { completion_tokens: number } };
    expect(usage.completion_tokens).toBe(2);
  });
});

describe("limits of projects and models", () => {
  it("keys of one project share its limits, those of another have their own", async () => {
    await set("project", "team", { requests_per_minute: 3 });
    const keys = [await newKey({ project: "team" }), await newKey({ project: "team" })];
    const other = await newKey({});
    expect([keys[0]?.project, other.project]).toEqual(["team", "default"]);
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await call(keys[i % 2]?.key ?? "")).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    const refused = await call(keys[0]?.key ?? "");
    expect(refused.headers.get("x-ratelimit-limit-requests")).toBe("3");
    expect(refused.headers.get("x-should-retry")).toBe("true");
    expect(Number(refused.headers.get("retry-after-ms"))).toBeGreaterThan(0);
    const { message } = await errorOf(refused);
    expect(message).toContain("Rate limit reached for the project team on requests per minute");
    expect((await call(other.key)).status).toBe(200);
  });

  it("a model's limits hold for the calls of all keys, on every endpoint of it", async () => {
    await set("model", MODEL, { requests_per_minute: 4 });
    const keys = [await newKey({}), await newKey({})];
    const openai = keys.map(
      ({ key }) => new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: key, maxRetries: 0 }),
    );
    await openai[0]?.chat.completions
      .create({ model: MODEL, messages: [] as never })
      .catch(() => 0);
    await openai[0]?.completions.create({ model: MODEL, prompt: "one", max_tokens: 1 });
    await openai[1]?.embeddings.create({ model: MODEL, input: "one" });
    await openai[1]?.responses.create({ model: MODEL, input: "one", store: false });
    expect((await call(keys[0]?.key ?? "")).status).toBe(200);
    const refused = await call(keys[1]?.key ?? "");
    expect(refused.status).toBe(429);
    expect((await errorOf(refused)).message).toContain(`the model ${MODEL} on requests per minute`);
    const models = await fetch(`${server.url}/api/v1/models`, {
      headers: { authorization: `Bearer ${keys[1]?.key}` },
    });
    expect(models.status).toBe(200);
  });

  it("limits and prices of a project's own model are not those of another's", async () => {
    const known = server.control.state.models.get(MODEL)!;
    const deployment = server.control.state.deployments.get(known.deployment)!;
    for (const project of ["team-a", "team-b"]) {
      const model = { ...known, id: "own", project };
      const command = { type: "model.register" as const, atMs: 0, model, deployment };
      expect(await server.control.propose(command)).toMatchObject({ ok: true });
    }
    const prices = { input: 0, output: 1000 };
    const budget = { amount: 0.005, period: "day" as const };
    const reply = await set("model", "own", { requests_per_minute: 1, prices }, "team-a");
    expect(reply.body).toMatchObject({ id: "model:team-a own", name: "own", project: "team-a" });
    const keys = [await newKey({ project: "team-a" }), await newKey({ project: "team-b" })];
    const ask = async (at: number) => {
      const answer = await call(keys[at]?.key ?? "", { model: "own" });
      if (answer.status !== 200) return (await errorOf(answer)).code;
      await answer.text();
      const { cost, isOwnModel } = server.rows.at(-1)!;
      expect(isOwnModel).toBe(true);
      return cost / NANOS;
    };
    expect([await ask(0), await ask(0)]).toEqual([0.005, "rate_limit_exceeded"]);
    await set("model", "own", { prices, budget }, "team-a");
    expect(await ask(0)).toBe("insufficient_quota");
    expect([await ask(1), await ask(1), await ask(1)]).toEqual([0, 0, 0]);
    await set("model", "own", {}, "team-a");
    expect([await ask(0), server.control.state.limits.has("model:team-a own")]).toEqual([0, false]);
  });

  it("the headers show the tightest limit; a refused call takes nothing of the others", async () => {
    await set("project", "team", { tokens_per_minute: 100 });
    const limits = { tokens_per_minute: 1000, requests_per_minute: 10 };
    const { key } = await newKey({ project: "team", limits });
    const passed = await call(key);
    expect(passed.headers.get("x-ratelimit-limit-tokens")).toBe("100");
    expect(passed.headers.get("x-ratelimit-limit-requests")).toBe("10");
    const refused = await call(key, { max_tokens: 200 });
    expect(refused.status).toBe(429);
    expect(refused.headers.get("x-should-retry")).toBe("false");
    expect(refused.headers.get("x-ratelimit-remaining-requests")).toBe("9");
    expect((await errorOf(refused)).message).toMatch(/project team on tokens.*Requested: 2\d\d/);
  });
});

describe("PUT /limits", () => {
  it("refuses what is no limit with its place", async () => {
    const wrong: [string, string, object, number, string, string?][] = [
      ["model", MODEL, { budget: { amount: 1, period: "week" } }, 400, "budget.period"],
      ["model", MODEL, { prices: { input: 0.0001 } }, 400, "prices.input"],
      ["model", MODEL, { requests_per_minute: 0 }, 400, "requests_per_minute"],
      ["project", "team", { prices: { input: 1 } }, 400, "prices"],
      ["key", "unknown1", { concurrency: 1 }, 404, ""],
      ["worker", "w", {}, 404, ""],
      ["project", "no name", { concurrency: 1 }, 400, "name"],
      ["project", "team", {}, 400, "project", "team"],
      ["model", MODEL, {}, 400, "project", "No Name"],
    ];
    for (const [kind, name, body, status, param, project] of wrong) {
      const reply = await set(kind, name, body as LimitSettings, project);
      expect([reply.status, kind, name]).toEqual([status, kind, name]);
      const pointers = (reply.body["errors"] as { pointer: string }[]).map((each) => each.pointer);
      if (param !== "") expect(pointers).toContain(`#/${param.replaceAll(".", "/")}`);
    }
  });

  it("lists what has limits, with the prices of models", async () => {
    await set("model", MODEL, { prices: { input: 0.15, output: 0.6 }, concurrency: 7 });
    const reply = await fetch(`${server.url}/api/v1/limits?limit=1000`, {
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    const { data } = (await reply.json()) as { data: Record<string, unknown>[] };
    expect(data.find(({ kind }) => kind === "model")).toEqual({
      object: "limits",
      id: `model:${MODEL}`,
      kind: "model",
      name: MODEL,
      project: null,
      requests_per_minute: null,
      tokens_per_minute: null,
      concurrency: 7,
      budget: null,
      prices: { input: 0.15, output: 0.6 },
    });
  });
});
