// holds: plugins-routes, plugins-refused, plugins-sinks

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { Heddle } from "@heddle/client/heddle";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, expect, test } from "vitest";
import { childrenOf, ProcessCluster } from "../../../test/process-cluster.ts";

// A master's process with good, misbehaving and refused plugins, asked over HTTP.

const folder = mkdtempSync(join(tmpdir(), "heddle-plugin-routes-"));
let cluster: ProcessCluster;
let heddle: Heddle;

const NOTES = `
import { definePlugin, refusal, z } from "heddle/plugin-kit";
const note = z.object({ id: z.string(), text: z.string(), by: z.string().optional() });
export default definePlugin({
  name: "notes", version: "1.2.0", apiVersion: 1, capabilities: ["routes"],
  config: z.strictObject({ greeting: z.string().max(20) }),
  setup({ routes, config }) {
    const notes = new Map();
    routes.add({ method: "PUT", path: "/notes/{id}", permission: "models:deploy", summary: "Writes a note.",
      body: z.strictObject({ text: z.string().min(1).max(10) }), reply: note,
      handle: ({ params, body, caller }) => {
        if (params.id === "taken") throw refusal("conflict", "The note is taken.", "id");
        const made = { id: params.id, text: body.text, by: caller.name };
        notes.set(params.id, made);
        return made;
      } });
    routes.add({ method: "GET", path: "/notes", permission: "jobs:read", summary: "Lists notes.",
      query: z.object({ limit: z.coerce.number().int().min(1).max(9).default(5) }),
      reply: z.array(note), handle: ({ query }) => [...notes.values()].slice(0, query.limit) });
    routes.add({ method: "GET", path: "/count", permission: "public", summary: "Counts.",
      query: z.object({ to: z.coerce.number() }), events: { n: z.object({ n: z.number() }) },
      async *handle({ query }) {
        for (let n = 1; n <= query.to; n++) yield { event: "n", data: { n } };
        if (query.to > 5) throw new Error("no further");
      } });
    const tree = z.object({ name: z.string(), get children() { return z.array(tree); } });
    routes.add({ method: "GET", path: "/tree", permission: "public", summary: "Grows.", reply: tree,
      handle: () => ({ name: "root", children: [{ name: "leaf", children: [] }] }) });
    routes.add({ method: "DELETE", path: "/notes", permission: "authenticated", summary: "Clears.",
      handle: () => { notes.clear(); } });
    routes.add({ method: "POST", path: "/greet", permission: "public", summary: "Greets.",
      body: z.object({}), reply: z.object({ text: z.string() }), handle: () => ({ text: config.greeting }) });
  },
});`;

const WILD = `
export default { name: "wild", version: "1", apiVersion: 1, capabilities: ["routes"], setup({ routes }) {
  const add = (path, handle) => routes.add({ method: "POST", path, permission: "public", summary: "Ends.", handle });
  add("/exit", () => process.exit(1));
  add("/hang", () => { for (;;) {} });
} };`;

/** Its first delivery fails, and one later ends its process. */
const LEDGER = `
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { z } from "heddle/plugin-kit";
export default { name: "ledger", version: "1", apiVersion: 1, capabilities: ["eventSinks"],
  config: z.strictObject({ file: z.string() }),
  setup({ eventSinks, config: { file } }) {
    let deliveries = 0;
    eventSinks.add({ name: "file", from: "start", deliver(events) {
      if (++deliveries === 1) throw new Error("not yet");
      for (const event of events) appendFileSync(file, JSON.stringify(event) + "\\n");
      if (!existsSync(file + ".ended") && events.some(({ type }) => type === "KEY_CREATE")) {
        writeFileSync(file + ".ended", "");
        process.exit(1);
      }
    } });
    eventSinks.add({ name: "keys", from: "start", types: ["KEY_REVOKE"],
      deliver: (events) => appendFileSync(file + ".keys", events.map(({ type }) => type + "\\n").join("")) });
  } };`;

beforeAll(async () => {
  const write = (name: string, code: string) => writeFileSync(join(folder, name), code);
  write("notes.mjs", NOTES);
  write("wild.mjs", WILD);
  write("ledger.mjs", LEDGER);
  write("old.mjs", 'export default { name: "old", version: "1", apiVersion: 0, setup() {} };');
  write("open.mjs", WILD.replace("permission: ", "allowed: ").replace('"wild"', '"open"'));
  const digest = `sha256:${"0".repeat(64)}`;
  const plugins = [
    { from: "./notes.mjs", config: { greeting: "Hello" } },
    { from: "./notes.mjs", config: { greeting: "again" } },
    { from: "./wild.mjs" },
    { from: "./ledger.mjs", config: { file: join(folder, "ledger") }, write: ["./"] },
    { from: "./old.mjs" },
    { from: "./open.mjs" },
    { from: "./notes.mjs", config: { greeting: 1, other: 2 } },
    { from: "./wild.mjs", digest },
    { from: "./none.mjs" },
  ];
  write("list.json", JSON.stringify({ plugins }));
  write("broken.json", '{ "plugin": [] }');
  const setting = [join(folder, "list.json"), join(folder, "broken.json")].join(",");
  cluster = await ProcessCluster.start({ workers: 0, masterFlags: ["--plugins", setting] });
  heddle = new Heddle({ endpoint: cluster.url, auth_token: cluster.adminKey });
});
afterAll(async () => {
  await cluster.close();
  rmSync(folder, { recursive: true });
});

async function call(method: string, path: string, body?: unknown, key = cluster.adminKey) {
  const reply = await fetch(`${cluster.url}/api/v1/custom${path}`, {
    method,
    headers: {
      ...(key && { authorization: `Bearer ${key}` }),
      ...(body !== undefined && { "content-type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  const isJson = reply.headers.get("content-type")?.includes("json");
  return { status: reply.status, body: isJson ? JSON.parse(text) : text };
}

test("plugin routes: a route parses its input by its schemas and answers by them", async () => {
  const made = await call("PUT", "/notes/notes/a", { text: "first" });
  expect(made).toEqual({
    status: 200,
    body: { id: "a", text: "first", by: "bootstrap administrator" },
  });
  expect(await call("GET", "/notes/notes?limit=1")).toMatchObject({ body: [{ id: "a" }] });
  expect(await call("DELETE", "/notes/notes")).toEqual({ status: 204, body: "" });
  expect((await call("GET", "/notes/notes")).body).toEqual([]);
  expect((await call("POST", "/notes/greet", {}, "")).body).toEqual({ text: "Hello" });
});

test("plugin routes: wrong input and refusals are problems that name what is wrong", async () => {
  const long = await call("PUT", "/notes/notes/a", { text: "far too long", more: 1 });
  expect(long).toMatchObject({ status: 400, body: { code: "invalid_value" } });
  expect(long.body.errors.map(({ pointer }: { pointer: string }) => pointer).sort()).toEqual([
    "#/more",
    "#/text",
  ]);
  expect(await call("GET", "/notes/notes?limit=99")).toMatchObject({
    status: 400,
    body: { errors: [{ pointer: "#/limit" }] },
  });
  expect(await call("GET", "/notes/notes?limits=9")).toMatchObject({
    status: 400,
    body: { detail: expect.stringContaining("'limit'") },
  });
  expect(await call("PUT", "/notes/notes/taken", { text: "x" })).toMatchObject({
    status: 409,
    body: { detail: "The note is taken.", errors: [{ pointer: "#/id" }] },
  });
  expect((await call("PATCH", "/notes/notes")).status).toBe(405);
  expect((await call("POST", "/notes/notes", {})).status).toBe(405);
  expect((await call("GET", "/nobody/notes")).status).toBe(404);
});

test("permissions: each route has its own, and keys without it are refused", async () => {
  const reader = await cluster.createKey({ scopes: ["jobs:read"] });
  expect((await call("GET", "/notes/notes", undefined, reader)).status).toBe(200);
  expect((await call("PUT", "/notes/notes/a", { text: "x" }, reader)).status).toBe(403);
  expect((await call("DELETE", "/notes/notes", undefined, "")).status).toBe(401);
});

test("plugin routes: a stream's events arrive; a fault after the first is an event", async () => {
  const three = [1, 2, 3].map((n) => `event: n\ndata: {"n":${n}}\n\n`).join("");
  expect((await call("GET", "/notes/count?to=3")).body).toBe(three);
  const failed = String((await call("GET", "/notes/count?to=6")).body);
  expect(failed).toContain('{"n":6}');
  expect(failed).toMatch(/event: error\ndata: .*server_error/);
  expect(failed).not.toContain("no further");
});

const TREE = {
  "application/json": {
    schema: {
      $id: "urn:heddle:notes:GET%20%2Ftree:reply",
      properties: { children: { items: { $ref: "#" } } },
    },
  },
};

test("documents: routes are in the served OpenAPI document and in the endpoints", async () => {
  const reply = await fetch(`${cluster.url}/api/v1/openapi.json`);
  const document = (await reply.json()) as Record<string, never>;
  expect(await new Validator().validate(structuredClone(document))).toMatchObject({ valid: true });
  expect(document).toMatchObject({
    paths: {
      "/api/v1/custom/notes/notes/{id}": {
        put: {
          "x-permission": "models:deploy",
          parameters: [{ name: "id", in: "path" }],
          requestBody: {
            content: {
              "application/json": { schema: { properties: { text: { maxLength: 10 } } } },
            },
          },
        },
      },
      // Its references are within the schema, not within the document.
      "/api/v1/custom/notes/tree": { get: { responses: { 200: { content: TREE } } } },
    },
  });
  const endpoints = (await (await cluster.request("GET", "/api/v1/endpoints")).json()) as {
    data: unknown[];
  };
  expect(endpoints.data).toContainEqual({
    method: "PUT",
    path: "/api/v1/custom/notes/notes/:id",
    permission: "models:deploy",
    summary: "Writes a note.",
  });
});

test("plugin routes: one that ends or blocks is answered for and started again", async () => {
  const faults = async () => (await heddle.plugins.get("wild")).faults;
  const { exited, blocked } = await faults();
  expect(await call("POST", "/wild/exit", undefined, "")).toMatchObject({ status: 503 });
  await eventually(async () => (await faults()).exited > exited, "the end is counted");
  const back = async () => (await heddle.plugins.get("wild")).state === "ready";
  await eventually(back, "it is started again");
  let isEnded = false;
  const hung = held(call("POST", "/wild/hang", undefined, ""));
  hung.finally(() => (isEnded = true)).catch(() => {});
  // Meanwhile the master and other plugins answer.
  expect((await call("GET", "/notes/notes")).status).toBe(200);
  expect(isEnded).toBe(false);
  expect((await hung).status).toBeGreaterThanOrEqual(503);
  await eventually(async () => (await faults()).blocked > blocked, "the block is counted");
  expect(await cluster.metric("heddle_plugin_faults_total", 'kind="blocked"')).toBeGreaterThan(0);
});

test("plugins: refused ones are listed with the reason, and the master serves", async () => {
  const all = await heddle.plugins.list();
  const reasons = all.filter(({ state }) => state === "refused").map(({ reason }) => reason);
  expect(reasons).toEqual([
    expect.stringContaining("has its name notes already"),
    expect.stringContaining("its apiVersion is 0"),
    expect.stringContaining("declares no permission"),
    expect.stringMatching(/config\.greeting: .*; config: .*other/),
    expect.stringContaining("which is not allowed"),
    expect.stringContaining("there is no file"),
    expect.stringContaining('Unrecognized key: "plugin"'),
  ]);
  expect((await call("POST", "/open/exit", undefined, "")).status).toBe(404);
  // One that was refused is named by its place.
  const threw = `plugin="${join(folder, "open.mjs")}",kind="threw"`;
  expect(await cluster.metric("heddle_plugin_faults_total", threw)).toBe(1);
});

test("event sinks: get every event in order, at least once, also after a restart", async () => {
  const file = join(folder, "ledger");
  const delivered = () =>
    (existsSync(file) ? readFileSync(file, "utf8") : "")
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { type: string; sequence: string });
  const created = () => delivered().filter(({ type }) => type === "KEY_CREATE").length;
  await cluster.createKey({ scopes: ["jobs:read"] });
  // Delivered twice: the process ended before it had answered.
  await eventually(async () => created() >= 3, "keys are in the sink");
  await cluster.stop(cluster.master);
  await cluster.startMaster();
  const before = created();
  const made = await cluster.request("POST", "/api/v1/keys", {
    name: "later",
    scopes: ["jobs:read"],
  });
  const { id } = (await made.json()) as { id: string };
  await cluster.request("DELETE", `/api/v1/keys/${id}`);
  await eventually(async () => created() > before, "the later key is in the sink");
  const places = [...new Set(delivered().map(({ sequence }) => Number(sequence)))];
  expect(places).toEqual(Array.from({ length: places.length }, (_, at) => at));
  await eventually(async () => existsSync(`${file}.keys`), "the other sink has its event");
  expect(readFileSync(`${file}.keys`, "utf8")).toMatch(/^(KEY_REVOKE\n)+$/);
  await eventually(async () => (await cluster.metric("heddle_plugin_sink_lag")) < 5, "it follows");
});

test("plugins: a master that is killed leaves no process of one", async () => {
  const children = childrenOf(cluster.master.pid);
  expect(children.length).toBeGreaterThan(1);
  await cluster.stop(cluster.master, "SIGKILL");
  await eventually(async () => children.every((pid) => !existsSync(`/proc/${pid}`)), "all ended");
  await cluster.startMaster();
});
