// holds: access-projects, access-foreign-ids

import { SecretKeys } from "@heddle/base/secret-keys";
import type { Route } from "@heddle/contracts/api/cluster";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

// Every route of a live master's table, tried with what another project has.

const PERMISSIONS = [
  "inference:create",
  "files:*",
  "batches:*",
  "models:read",
  "models:deploy",
  "jobs:read",
  "jobs:create",
  "jobs:cancel",
  "secrets:*",
  "events:read",
];
const SECRET = "canary-value-5f1c";
const ONE_STEP = { only: { block: "shell", config: { command: "true" } } };
/** The first parts of routes whose ids are of the whole cluster: no project owns them. */
const OF_THE_CLUSTER = [
  "cluster",
  "events",
  "keys",
  "limits",
  "plugins",
  "queues",
  "roles",
  "service-accounts",
  "webhooks",
  "workers",
];

let server: TestMaster;
let routes: Route[];
let owner: string;
let outsider: string;
/** What the owner has, by the first part of its routes, and an id that nothing has. */
const ids = new Map<string, { readonly own: string; readonly unknown: string }>();

beforeAll(async () => {
  server = await startTestMaster({}, [], new SecretKeys([Buffer.alloc(32, 5)]));
  const listed = await send(server, "GET", "/api/v1/endpoints");
  routes = ((await listed.json()) as { data: Route[] }).data;
  const keyOf = async (project: string) =>
    (await server.addKey({ scopes: PERMISSIONS, project })).text;
  [owner, outsider] = [await keyOf("canary-tenant"), await keyOf("other")];
  await send(server, "PUT", "/api/v1/projects/canary-tenant", { weight: 2 });
  await makeAll();
});
afterAll(() => server.master.close());

async function make(
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Record<string, string>> {
  const reply = await send(server, "POST", `/api/v1/${path}`, body, { key: owner, headers });
  const made = (await reply.json()) as Record<string, string>;
  expect([200, 202], `${path}: ${JSON.stringify(made)}`).toContain(reply.status);
  return made;
}

async function makeAll(): Promise<void> {
  const file = await upload();
  const [job, conversation, model] = [
    await make("jobs", {
      name: "canary-job",
      command: "true",
      environment_variables: { TOKEN: SECRET },
    }),
    await make("conversations", { metadata: { note: "canary-note" } }),
    await make("models", {
      id: "canary-model",
      source: "file:///canary-weights.gguf",
      visibility: "project",
    }),
  ];
  await send(server, "PUT", "/api/v1/secrets/canary-secret", { value: SECRET }, { key: owner });
  const batch = await make("batches", {
    input_file_id: file,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  const text = { model: "FamilyA-1-2B", max_tokens: 2 };
  const response = await make("responses", { ...text, input: "one two", max_tokens: undefined });
  const completion = await make(
    "completions",
    { ...text, prompt: "one two" },
    { prefer: "respond-async" },
  );
  const pipeline = await make("pipelines", {
    name: "canary-pipeline",
    steps: ONE_STEP,
  });
  const of = (own: string) => ({ own, unknown: `${own.slice(0, -4)}zzzz` });
  ids.set("jobs", { own: job["job_id"] ?? "", unknown: "job_00000000000000000000000000" });
  ids.set("files", of(file));
  ids.set("conversations", of(conversation["id"] ?? ""));
  ids.set("batches", of(batch["id"] ?? ""));
  ids.set("models", of(model["id"] ?? ""));
  ids.set("projects", of("canary-tenant"));
  ids.set("secrets", of("canary-secret"));
  ids.set("responses", of(response["id"] ?? ""));
  ids.set("completions", of(completion["id"] ?? ""));
  ids.set("pipelines", of(pipeline["id"] ?? ""));
}

async function upload(): Promise<string> {
  const form = new FormData();
  form.set("purpose", "batch");
  form.set("file", new File(["{}\n"], "canary-file.jsonl"));
  const headers = { authorization: `Bearer ${owner}` };
  const reply = await fetch(`${server.url}/api/v1/files`, { method: "POST", headers, body: form });
  expect(reply.status).toBe(200);
  return ((await reply.json()) as { id: string }).id;
}

/** The answer without what differs between calls, and `ID` in place of the id. */
async function answerOf(reply: Response, id: string): Promise<string> {
  const text = (await reply.text()).replaceAll(id, "ID").replace(/"request_id":"[^"]*"/, "");
  return `${reply.status} ${text.replace(/req_[0-9A-Za-z]+/g, "")}`;
}

describe("what another project has", () => {
  it("foreign ids: every route answers as for an id that nothing has", async () => {
    const unowned = new Set<string>();
    let tried = 0;
    for (const { method, path } of routes) {
      const [root = ""] = path.replace("/api/v1/", "").split("/");
      const known = ids.get(root);
      if (!/[:*]/.test(path)) continue;
      if (!known) unowned.add(root);
      if (!known || method === "PUT") continue;
      const ask = async (id: string) => {
        const at = path.replace(/:[A-Za-z]+/, id).replace(/[:*][A-Za-z]+/g, "x");
        const body = method === "GET" || method === "DELETE" ? undefined : {};
        return answerOf(await send(server, method, at, body, { key: outsider }), id);
      };
      const [foreign, unknown] = [await ask(known.own), await ask(known.unknown)];
      expect(foreign, `${method} ${path}`).toBe(unknown);
      expect(foreign, `${method} ${path}`).toMatch(/^(404|400) /);
      tried++;
    }
    expect(tried).toBeGreaterThan(30);
    expect([...unowned].sort()).toEqual(OF_THE_CLUSTER);
  });

  it("foreign ids: as cursors and filters of lists they are as unknown ones", async () => {
    let known = 0;
    for (const [root, { own, unknown }] of ids) {
      for (const parameter of ["after", "cursor", "name"]) {
        const ask = async (id: string) => {
          const path = `/api/v1/${root}?${parameter}=${id}`;
          return answerOf(await send(server, "GET", path, undefined, { key: outsider }), id);
        };
        const foreign = await ask(own);
        expect(foreign, `${root} by ${parameter}`).toBe(await ask(unknown));
        if (!foreign.includes("There is no parameter")) known++;
      }
    }
    expect(known).toBeGreaterThan(3);
  });

  it("foreign ids: bodies that name them are refused as for unknown ones", async () => {
    const chat = { messages: [{ role: "user", content: "hi" }] };
    const batch = { endpoint: "/v1/chat/completions", completion_window: "24h" };
    const tries: readonly [string, string, (id: string) => object][] = [
      ["models", "chat/completions", (model) => ({ ...chat, model })],
      ["models", "completions", (model) => ({ prompt: "hi", model })],
      [
        "models",
        "models",
        (base) => ({ id: "adapted", source: "file:///a.gguf", adapter: { base } }),
      ],
      [
        "jobs",
        "models",
        (job) => ({
          id: "taken",
          visibility: "project",
          weights: { sources: [`artifact://${job}/1/0/model.gguf`], sha256: "0".repeat(64) },
        }),
      ],
      ["models", "embeddings", (model) => ({ input: "hi", model })],
      ["models", "responses", (model) => ({ input: "hi", model })],
      ["models", "messages", (model) => ({ ...chat, max_tokens: 1, model })],
      ["files", "batches", (input_file_id) => ({ ...batch, input_file_id })],
      [
        "conversations",
        "responses",
        (conversation) => ({ input: "hi", model: "FamilyA-1-2B", conversation }),
      ],
      [
        "responses",
        "responses",
        (id) => ({ input: "hi", model: "FamilyA-1-2B", previous_response_id: id }),
      ],
      ["jobs", "jobs", (id) => ({ name: "depends", command: "true", dependencies: [id] })],
      [
        "secrets",
        "jobs",
        (name) => ({ name: "names", command: "true", secret_variables: { TOKEN: name } }),
      ],
    ];
    for (const [root, path, bodyOf] of tries) {
      const { own, unknown } = ids.get(root)!;
      const ask = async (id: string) => {
        const sent = send(server, "POST", `/api/v1/${path}`, bodyOf(id), { key: outsider });
        return answerOf(await sent, id);
      };
      const foreign = await ask(own);
      expect(foreign, `${path} with ${root}`).toBe(await ask(unknown));
      expect(foreign, `${path} with ${root}`).toMatch(/^(404|422|400) /);
    }
  });

  it("foreign ids: a permission of another kind in the whole cluster opens no job", async () => {
    const role = { permissions: ["models:read"] };
    expect((await send(server, "PUT", "/api/v1/roles/catalog", role)).status).toBe(200);
    const { id, text: key } = await server.addKey({ scopes: PERMISSIONS, project: "other" });
    const bound = { kind: "key", subject: id, role: "catalog" };
    expect((await send(server, "POST", "/api/v1/bindings", bound)).status).toBe(200);
    const { own, unknown } = ids.get("jobs")!;
    const inputs = (job: string) => [{ name: "in", job, artifact: "out" }];
    const starts = (job: string) => ({ name: "takes", command: "true", inputs: inputs(job) });
    const asked = { key, headers: { "x-heddle-project": "other" } };
    for (const job of [own, unknown]) {
      const submitted = await send(server, "POST", "/api/v1/jobs", starts(job), asked);
      expect(await answerOf(submitted, job)).toMatch(/^422 .*no job has the id ID/);
    }
  });

  it("foreign ids: a job that poses as a pipeline of them cancels none", async () => {
    const { own } = ids.get("jobs")!;
    const step = { step: "s", block: "b", key: "k", job: own, reused: false, needs: [] };
    const config = { name: "posing", jobs: [step] };
    const posing = { name: "posing", command: "true", algorithm: "pipeline", config };
    const submitted = await send(server, "POST", "/api/v1/jobs", posing, { key: outsider });
    expect(submitted.status).toBe(202);
    const { job_id } = (await submitted.json()) as { job_id: string };
    const path = `/api/v1/pipelines/${job_id}`;
    const cancelled = await send(server, "DELETE", path, undefined, { key: outsider });
    expect(cancelled.status).toBe(202);
    const states = [own, job_id].map((id) => server.control.state.jobs.get(id)?.state);
    expect(states).toEqual(["accepted", "cancelled"]);
  });

  it("foreign ids: no list and no description shows them", async () => {
    let read = 0;
    for (const { method, path } of routes) {
      if (method !== "GET" || /[:*]/.test(path)) continue;
      const reply = await send(server, method, path, undefined, { key: outsider });
      const text = await reply.text();
      expect(text, path).not.toMatch(/canary/);
      for (const [root, { own }] of ids) expect(text, `${path}: ${root}`).not.toContain(own);
      read++;
    }
    expect(read).toBeGreaterThan(20);
    const page = await (
      await send(server, "GET", "/api/v1/models", undefined, { key: owner })
    ).text();
    expect(page).toContain("canary-model");
  });

  // holds: access-metrics
  it("metrics: name what projects have only to those who may read all", async () => {
    const spoken = { model: "canary-model", messages: [{ role: "user", content: "hi" }], n: 999 };
    await send(server, "POST", "/api/v1/chat/completions", spoken, { key: owner });
    const { text: scraper, id } = await server.addKey({ scopes: ["cluster:read"] });
    const metrics = async (headers: Record<string, string>) => {
      const reply = await fetch(`${server.url}/metrics`, { headers });
      expect(reply.status).toBe(200);
      return reply.text();
    };
    const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
    for (const headers of [{}, bearer(outsider), bearer(owner), bearer(scraper)]) {
      const text = await metrics(headers);
      expect(text).not.toMatch(/canary|project=/);
      expect(text).toMatch(/^heddle_cluster_jobs\{/m);
      expect(text).toMatch(/^# Series of projects, .* are left out/m);
    }
    const binding = { kind: "key", subject: id, role: "viewer" };
    expect((await send(server, "POST", "/api/v1/bindings", binding)).status).toBe(200);
    for (const key of [scraper, server.adminKey]) {
      const text = await metrics(bearer(key));
      expect(text).toContain('project="canary-tenant"');
      expect(text).toContain('model_name="canary-model"');
      expect(text).not.toContain("are left out");
    }
    const refused = await fetch(`${server.url}/metrics`, { headers: bearer("hdl_no_such_key") });
    expect(refused.status).toBe(401);
  });

  it("figures: GPU-hours are of the projects whose jobs the caller may see", async () => {
    const seen = async (key: string) => {
      const reply = await send(server, "GET", "/api/v1/cluster/metrics", undefined, { key });
      const { jobs } = (await reply.json()) as { jobs: { gpu_hours: object } };
      return Object.keys(jobs.gpu_hours);
    };
    const keyOf = async (project: string) =>
      (await server.addKey({ scopes: ["cluster:read", "jobs:read"], project })).text;
    expect(await seen(await keyOf("canary-tenant"))).toEqual(["canary-tenant"]);
    expect(await seen(await keyOf("other"))).toEqual([]);
    expect(await seen(server.adminKey)).toContain("canary-tenant");
  });

  it("environment: values are read only by those who may submit", async () => {
    const path = `/api/v1/jobs/${ids.get("jobs")?.own}`;
    const { text: viewer } = await server.addKey({
      scopes: [],
      role: "viewer",
      project: "canary-tenant",
    });
    const read = async (key: string) =>
      (await send(server, "GET", path, undefined, { key })).text();
    expect(await read(owner)).toContain(SECRET);
    const masked = await read(viewer);
    expect(masked).not.toContain(SECRET);
    expect(JSON.parse(masked)).toMatchObject({
      spec: { environment_variables: { TOKEN: "***" } },
    });
  });

  // holds: access-names-in-use
  it("names in use: another project takes them as it takes free ones", async () => {
    const trains = { algorithm: "fedavg", command: "true" };
    const source = "file:///other-weights.gguf";
    const tries: readonly [string, string, (name: string) => object, string?][] = [
      ["POST", "jobs", (name) => ({ name, command: "true" }), "canary-job"],
      [
        "POST",
        "jobs?dry_run=true",
        (name) => ({ name: "n1", ...trains, config: { register_as: name } }),
      ],
      ["POST", "jobs", (name) => ({ name: `n-${name}`, ...trains, config: { register_as: name } })],
      ["POST", "models", (id) => ({ id, source, visibility: "project" })],
      ["PUT", "secrets/NAME", () => ({ value: "v" }), "canary-secret"],
      ["POST", "pipelines", (name) => ({ name, steps: ONE_STEP }), "canary-pipeline"],
    ];
    for (const [method, path, bodyOf, taken = "canary-model"] of tries) {
      const ask = async (name: string) => {
        const at = `/api/v1/${path.replace("NAME", name)}`;
        const sent = send(server, method, at, bodyOf(name), { key: outsider });
        const answer = await answerOf(await sent, name);
        return answer.replace(/job_[0-9A-Z]{26}|\d{4}-\d\d-\d\dT[^"]*|"created":\d+/gi, "");
      };
      const free = await ask(`free-${taken.slice(7)}`);
      expect(free, `${method} ${path}`).toMatch(/^(200|202) /);
      expect(await ask(taken), `${method} ${path}`).toBe(free);
    }
    const [own, other] = await Promise.all(
      [owner, outsider].map(async (key) => {
        const reply = await send(server, "GET", "/api/v1/models/canary-model", undefined, { key });
        return (await reply.json()) as { project: string };
      }),
    );
    expect([own?.project, other?.project]).toEqual(["canary-tenant", "other"]);
    const path = "/api/v1/models/canary-model";
    expect((await send(server, "DELETE", path, undefined, { key: outsider })).status).toBe(200);
    expect((await send(server, "GET", path, undefined, { key: owner })).status).toBe(200);
  });

  it("names in use: an idempotency key of another project is free", async () => {
    const ask = (key: string) => {
      const headers = { "idempotency-key": "canary-key" };
      return send(server, "POST", "/api/v1/conversations", {}, { key, headers });
    };
    const replies = [await ask(owner), await ask(outsider)];
    expect(replies.map(({ status }) => status)).toEqual([200, 200]);
    expect(replies[1]?.headers.get("idempotency-replayed")).toBeNull();
  });

  it("models: projects with the same weights share no replicas", async () => {
    const body = { id: "twin", source: "file:///canary-weights.gguf", visibility: "project" };
    const scaling = { min: 0, max: 2 };
    const made = await send(
      server,
      "POST",
      "/api/v1/models",
      { ...body, scaling },
      { key: outsider },
    );
    expect(made.status).toBe(200);
    const { models } = server.control.state;
    const served = [...models.values()].filter(({ id }) => ["twin", "canary-model"].includes(id));
    expect(new Set(served.map(({ deployment }) => deployment)).size).toBe(2);
    // Workers and preempted jobs show them to other projects.
    for (const { deployment } of served) expect(deployment).toMatch(/^project-[0-9a-f]{16}$/);
  });

  it("models: one of a project is listed, removed and replaced there alone", async () => {
    const path = "/api/v1/models/canary-model";
    const remove = (key: string) => send(server, "DELETE", path, undefined, { key });
    expect((await remove(outsider)).status).toBe(404);
    const view = await send(server, "GET", path, undefined, { key: owner });
    expect(await view.json()).toMatchObject({ visibility: "project", project: "canary-tenant" });
    expect((await send(server, "GET", path)).status).toBe(200);
    expect((await remove(owner)).status).toBe(200);
  });
});
