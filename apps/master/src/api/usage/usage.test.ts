// holds: usage-metrics

import { eventually } from "@heddle/base/testing/eventually";
import type { UsageView } from "@heddle/contracts/api/limits/usage";
import { NANOS } from "@heddle/contracts/limits";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postChat } from "../../../test/http.ts";
import { MasterGroup } from "../../../test/master-group.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const MODEL = "FamilyA-1-2B";
const ASK = { model: MODEL, messages: [{ role: "user", content: "one two three" }] };

interface UsagePage {
  readonly data: readonly UsageView[];
  readonly next_cursor: string | null;
}

describe("GET /usage", () => {
  let server: TestMaster;
  beforeAll(async () => {
    server = await startTestMaster();
  });
  afterAll(() => server.master.close());

  const get = (query: string, key = server.adminKey) =>
    fetch(`${server.url}/api/v1/usage?${query}`, { headers: { authorization: `Bearer ${key}` } });
  const page = async (query: string) => (await (await get(query)).json()) as UsagePage;

  it("equals the ledger's rows, grouped, filtered and page by page", async () => {
    await fetch(`${server.url}/api/v1/limits/model/${MODEL}`, {
      method: "PUT",
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
      body: JSON.stringify({ prices: { input: 1, output: 2.5 } }),
    });
    const { id, text } = await server.addKey();
    for (let i = 1; i <= 3; i++) {
      await (await postChat({ ...server, adminKey: text }, { ...ASK, max_tokens: i })).text();
    }
    await (await postChat(server, { ...ASK, max_tokens: 4 })).text();
    const { rows } = server;
    const total = (name: "promptTokens" | "completionTokens" | "cost", of = rows) =>
      of.reduce((sum, row) => sum + row[name], 0);
    const byDay = await page("");
    expect(byDay.data).toMatchObject([
      {
        api_key_id: null,
        num_model_requests: 4,
        input_tokens: total("promptTokens"),
        output_tokens: total("completionTokens"),
        cost: total("cost") / NANOS,
      },
    ]);
    const own = rows.filter(({ key }) => key === id);
    const mine = await page(`key=${id}&group_by=model,project`);
    expect(mine.data).toMatchObject([
      {
        model: MODEL,
        project_id: "default",
        num_model_requests: 3,
        cost: total("cost", own) / NANOS,
      },
    ]);
    const first = await page("group_by=key,day&limit=1");
    const second = await page(`group_by=key,day&limit=1&cursor=${first.next_cursor}`);
    expect([first, second].flatMap(({ data }) => data.map((each) => each.api_key_id))).toHaveLength(
      2,
    );
    expect(second.next_cursor).toBeNull();
    expect((await page("start=2020-01-01&end=2020-01-02")).data).toEqual([]);
  });

  // holds: access-usage
  it("shows a caller of projects their usage alone", async () => {
    const ofProject = async (project: string, more: readonly string[] = []) =>
      (await server.addKey({ scopes: ["inference:create", ...more], project })).text;
    const [vision, speech, reader] = await Promise.all([
      ofProject("vision"),
      ofProject("speech"),
      ofProject("vision", ["cluster:read"]),
    ]);
    for (const adminKey of [vision, speech]) {
      await (await postChat({ ...server, adminKey }, ASK)).text();
    }
    const seen = async (key: string, query = "") => {
      const reply = await get(`group_by=project&${query}`, key);
      return ((await reply.json()) as UsagePage).data.map(({ project_id }) => project_id);
    };
    expect(await seen(reader)).toEqual(["vision"]);
    expect(await seen(speech)).toEqual(["speech"]);
    expect(await seen(speech, "project=vision")).toEqual([]);
    expect(await seen(reader, "project=speech")).toEqual([]);
    expect(await seen(server.adminKey)).toEqual(expect.arrayContaining(["speech", "vision"]));
  });

  it("shows nothing to callers without a permission, and one project to those of all", async () => {
    const projects = async (key: string, headers: Record<string, string> = {}) => {
      const authorization = `Bearer ${key}`;
      const reply = await fetch(`${server.url}/api/v1/usage?group_by=project`, {
        headers: { authorization, ...headers },
      });
      return ((await reply.json()) as UsagePage).data.map(({ project_id }) => project_id);
    };
    const { text: none } = await server.addKey({ scopes: [] });
    expect(await projects(none)).toEqual([]);
    const { id, text } = await server.addKey({ scopes: [], project: "vision" });
    const role = { permissions: ["jobs:read"] };
    const make = (method: string, path: string, body: object) =>
      fetch(`${server.url}/api/v1/${path}`, {
        method,
        headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    await make("PUT", "roles/job-reader", role);
    await make("POST", "bindings", { kind: "key", subject: id, role: "job-reader" });
    expect(await projects(text)).toEqual(["vision"]);
    expect(await projects(text, { "x-heddle-project": "speech" })).toEqual(["speech"]);
  });

  it("refuses what it cannot sum", async () => {
    for (const query of ["group_by=week", "start=today", "start=2026-02-02&end=2026-01-01"]) {
      expect([(await get(query)).status, query]).toEqual([400, query]);
    }
  });
});

describe("usage of three masters", () => {
  const group = new MasterGroup(3);
  beforeAll(async () => {
    await group.startAll();
    await group.leader();
  });
  afterAll(() => group.close());

  it("is on all of them, also after the one that took the call is lost", async () => {
    const model = { id: "usage", source: "builtin://tiny" };
    await group.change("master-1", "POST", "/api/v1/models", model);
    const [taker, ...others] = [await group.leader(), ...group.names].filter(
      (name, at, all) => all.indexOf(name) === at,
    );
    const body = { ...ASK, model: "usage", stream: true };
    const call = fetch(`${group.url(taker as string)}/api/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${group.adminKey}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect((await call).status).toBe(200);
    await (await call).text();
    const seen = async (name: string) => {
      const reply = await group.request(name, "GET", "/api/v1/usage?group_by=model");
      return ((await reply.json()) as UsagePage).data.map((sum) => [
        sum.model,
        sum.num_model_requests,
        sum.num_failed_requests,
      ]);
    };
    const isSeen = async () =>
      (await Promise.all(others.map(seen))).every((sums) => String(sums) === "usage,1,0");
    await eventually(isSeen, "the other masters have the usage");
    await group.end(taker as string, "SIGKILL");
    expect(await isSeen()).toBe(true);
  });
});
