// holds: job-secrets

import { SecretKeys } from "@heddle/base/secret-keys";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

const VALUE = "canary-4f1c0b7e";
const keys = new SecretKeys([Buffer.alloc(32, 5)]);

let server: TestMaster;
let [vision, speech, viewer] = ["", "", ""];
beforeAll(async () => {
  server = await startTestMaster({}, [], keys);
  const keyOf = async (role: string, project: string) =>
    (await server.addKey({ scopes: [], role, project })).text;
  vision = await keyOf("operator", "vision");
  speech = await keyOf("operator", "speech");
  viewer = await keyOf("viewer", "vision");
});
afterAll(() => server.master.close());

const put = (name: string, body: unknown, key = vision, headers: Record<string, string> = {}) =>
  send(server, "PUT", `/api/v1/secrets/${name}`, body, { key, headers });
const get = (path: string, key = vision) =>
  send(server, "GET", `/api/v1/${path}`, undefined, { key });
const submit = (secret_variables: object, key = vision, more: object = {}) =>
  send(server, "POST", "/api/v1/jobs", { command: "true", secret_variables, ...more }, { key });

describe("secrets over HTTP", () => {
  it("are set and listed by name, and never shown", async () => {
    const reply = await put("token", { value: VALUE });
    const view = { object: "secret", name: "token", project: "vision", version: 1 };
    expect([reply.status, await reply.json()]).toEqual([200, expect.objectContaining(view)]);
    expect(await (await put("token", { value: `${VALUE}2` })).json()).toMatchObject({ version: 2 });
    const shown = await (await get("secrets/token")).text();
    const listed = await (await get("secrets")).text();
    for (const text of [shown, listed, [...server.control.snapshot()].join("\n")]) {
      expect(text).toContain('"token"');
      expect(text).not.toContain("canary");
      expect(text).not.toContain(Buffer.from(VALUE).toString("base64").slice(0, 12));
    }
  });

  it("are of one project: in another one they do not exist", async () => {
    expect((await get("secrets/token", speech)).status).toBe(404);
    expect(await (await get("secrets", speech)).json()).toMatchObject({ data: [] });
    const path = "/api/v1/secrets/token";
    expect((await send(server, "DELETE", path, undefined, { key: speech })).status).toBe(404);
    expect(await (await put("token", { value: "other" }, speech)).json()).toMatchObject({
      project: "speech",
      version: 1,
    });
    expect(await (await get("secrets/token")).json()).toMatchObject({ version: 2 });
  });

  it.each([
    ["UPPER", { value: "x" }],
    ["ok", { value: "" }],
    ["ok", { value: "a\0b" }],
    ["ok", { value: "\ud800" }],
    ["ok", { value: "x".repeat(32_769) }],
    ["ok", { value: 1 }],
    ["ok", { value: "x", project: "speech" }],
  ])("of name %s and body %# are refused without the value", async (name, body) => {
    const reply = await put(name, body);
    expect(reply.status).toBe(400);
    expect((await get(`secrets/${name}`)).status).toBe(404);
  });

  it("are set once under an idempotency key", async () => {
    const headers = { "idempotency-key": "set-once" };
    const first = await (await put("once", { value: "first value" }, vision, headers)).json();
    const again = await put("once", { value: "first value" }, vision, headers);
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    expect(await again.json()).toEqual(first);
  });

  it("are named by jobs of callers who may use them, and their names are shown", async () => {
    const reply = await submit({ TOKEN: "token" }, vision, { name: "uses" });
    expect(reply.status).toBe(202);
    const { job_id } = (await reply.json()) as { job_id: string };
    const job = await (await get(`jobs/${job_id}`, viewer)).text();
    expect(JSON.parse(job)).toMatchObject({ spec: { secret_variables: { TOKEN: "token" } } });
    expect(job).not.toContain("canary");
    const path = "/api/v1/secrets/token";
    const removal = await send(server, "DELETE", path, undefined, { key: vision });
    expect([removal.status, await removal.text()]).toEqual([409, expect.stringContaining(job_id)]);
  });

  it("that a job may not name are refused", async () => {
    const { text: submits } = await server.addKey({
      scopes: ["jobs:create", "jobs:read"],
      project: "vision",
    });
    const refused = await submit({ TOKEN: "token" }, submits, { name: "denied" });
    expect([refused.status, await refused.text()]).toEqual([
      403,
      expect.stringContaining("secrets:use in the project vision"),
    ]);
    const unknown = await submit({ TOKEN: "no-such" }, vision, { name: "unknown" });
    expect(unknown.status).toBe(422);
    const both = { name: "both", environment_variables: { TOKEN: "x" } };
    expect((await submit({ TOKEN: "token" }, vision, both)).status).toBe(422);
    expect((await submit({ HEDDLE_X: "token" }, vision, { name: "own" })).status).toBe(400);
    expect((await put("mine", { value: "x" }, viewer)).status).toBe(403);
    expect((await get("secrets", viewer)).status).toBe(403);
  });
});

describe("a master without a secrets key", () => {
  it("stores no secret, and says how to give it a key", async () => {
    const other = await startTestMaster();
    const body = { value: "some value" };
    const reply = await send(other, "PUT", "/api/v1/secrets/token", body);
    const text = await reply.text();
    await other.master.close();
    expect([reply.status, text]).toEqual([409, expect.stringContaining("--secrets-key-file")]);
    expect(text).not.toContain("some value");
  });
});
