// holds: client-routes

import { SecretKeys } from "@heddle/base/secret-keys";
import type { HeddleError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { JobApi } from "../../../test/job-api.ts";

/** Every method of the client: its call, and the route that it must reach. */
const METHODS: Readonly<Record<string, readonly [route: string, call: Call]>> = {
  "jobs.create": ["POST /api/v1/jobs", (heddle) => heddle.jobs.create(SPEC)],
  "jobs.explain": [
    "POST /api/v1/jobs",
    (heddle) => heddle.jobs.explain({ ...SPEC, name: "other" }),
  ],
  "jobs.list": ["GET /api/v1/jobs", (heddle) => heddle.jobs.list({ limit: 1 }).page()],
  "jobs.get": ["GET /api/v1/jobs/:id", ({ jobs }) => jobs.get("a b")],
  "jobs.cancel": ["DELETE /api/v1/jobs/:id", ({ jobs }) => jobs.cancel("a b")],
  "jobs.suspend": ["POST /api/v1/jobs/:id/suspend", ({ jobs }) => jobs.suspend("a b")],
  "jobs.resume": ["POST /api/v1/jobs/:id/resume", ({ jobs }) => jobs.resume("a b")],
  "jobs.logs": ["GET /api/v1/jobs/:id/logs", ({ jobs }) => jobs.logs("a b").next()],
  "jobs.metrics": ["GET /api/v1/jobs/:id/metrics", ({ jobs }) => jobs.metrics("a b")],
  "jobs.artifacts": ["GET /api/v1/jobs/:id/artifacts", ({ jobs }) => jobs.artifacts("a b")],
  "jobs.artifact": [
    "GET /api/v1/jobs/:id/artifacts/:name",
    ({ jobs }) => jobs.artifact("a b", "c/d").next(),
  ],
  "jobs.events": ["GET /api/v1/jobs/:id/events", ({ jobs }) => jobs.events("a b")],
  "jobs.stream": ["GET /api/v1/jobs/:id/events", ({ jobs }) => jobs.stream("a b").next()],
  "jobs.wait": ["GET /api/v1/jobs/:id/events", ({ jobs }) => jobs.wait("a b")],
  "pipelines.create": ["POST /api/v1/pipelines", ({ pipelines }) => pipelines.create(PIPELINE)],
  "pipelines.plan": ["POST /api/v1/pipelines", ({ pipelines }) => pipelines.plan(PIPELINE)],
  "pipelines.list": ["GET /api/v1/pipelines", ({ pipelines }) => pipelines.list().page()],
  "pipelines.get": ["GET /api/v1/pipelines/:id", ({ pipelines }) => pipelines.get("a b")],
  "pipelines.cancel": ["DELETE /api/v1/pipelines/:id", ({ pipelines }) => pipelines.cancel("a b")],
  "pipelines.blocks": ["GET /api/v1/blocks", ({ pipelines }) => pipelines.blocks()],
  "workers.list": ["GET /api/v1/workers", ({ workers }) => workers.list()],
  "workers.get": ["GET /api/v1/workers/:id", ({ workers }) => workers.get("a b")],
  "workers.drain": ["POST /api/v1/workers/:id/drain", ({ workers }) => workers.drain("a b")],
  "workers.resume": ["POST /api/v1/workers/:id/resume", ({ workers }) => workers.resume("a b")],
  "workers.revoke": ["POST /api/v1/workers/:id/revoke", ({ workers }) => workers.revoke("a b")],
  "queues.list": ["GET /api/v1/queues", ({ queues }) => queues.list().page()],
  "queues.set": ["PUT /api/v1/queues/:name", ({ queues }) => queues.set("q", {})],
  "projects.list": ["GET /api/v1/projects", ({ projects }) => projects.list().page()],
  "projects.get": ["GET /api/v1/projects/:name", ({ projects }) => projects.get("a b")],
  "projects.set": ["PUT /api/v1/projects/:name", ({ projects }) => projects.set("p", {})],
  "events.list": ["GET /api/v1/events", ({ events }) => events.list({ limit: 1 })],
  "events.stream": ["GET /api/v1/events", ({ events }) => events.stream({ after: "0.0" }).next()],
  "settings.list": ["GET /api/v1/cluster/settings", ({ settings }) => settings.list()],
  "settings.get": [
    "GET /api/v1/cluster/settings/:name",
    ({ settings }) => settings.get("job_timeout"),
  ],
  "settings.set": [
    "PUT /api/v1/cluster/settings/:name",
    ({ settings }) => settings.set("job_timeout", 90_000),
  ],
  "plugins.list": ["GET /api/v1/plugins", ({ plugins }) => plugins.list()],
  "plugins.get": ["GET /api/v1/plugins/:name", ({ plugins }) => plugins.get("a b")],
  "plugins.panel": [
    "GET /api/v1/custom/:plugin/console/:name",
    ({ plugins }) => plugins.panel("a b", "c d"),
  ],
  "keys.list": ["GET /api/v1/keys", ({ keys }) => keys.list().page()],
  "access.createSignInLink": [
    "POST /api/v1/access/sign-in-links",
    ({ access }) => access.createSignInLink(),
  ],
  "access.signIn": ["POST /api/v1/access/sign-in", ({ access }) => access.signIn("used")],
  "keys.create": ["POST /api/v1/keys", ({ keys }) => keys.create({ name: "contract" })],
  "keys.rotate": ["POST /api/v1/keys/:id/rotate", ({ keys }) => keys.rotate("a b")],
  "keys.revoke": ["DELETE /api/v1/keys/:id", ({ keys }) => keys.revoke("a b")],
  "usage.list": ["GET /api/v1/usage", ({ usage }) => usage.list({ group_by: ["key"] }).page()],
  "roles.list": ["GET /api/v1/roles", ({ roles }) => roles.list().page()],
  "roles.get": ["GET /api/v1/roles/:name", ({ roles }) => roles.get("a b")],
  "roles.set": [
    "PUT /api/v1/roles/:name",
    ({ roles }) => roles.set("contract", { permissions: ["jobs:read"] }),
  ],
  "roles.remove": ["DELETE /api/v1/roles/:name", ({ roles }) => roles.remove("a b")],
  "serviceAccounts.list": [
    "GET /api/v1/service-accounts",
    ({ serviceAccounts }) => serviceAccounts.list().page(),
  ],
  "serviceAccounts.get": [
    "GET /api/v1/service-accounts/:name",
    ({ serviceAccounts }) => serviceAccounts.get("a b"),
  ],
  "serviceAccounts.set": [
    "PUT /api/v1/service-accounts/:name",
    ({ serviceAccounts }) => serviceAccounts.set("contract"),
  ],
  "serviceAccounts.remove": [
    "DELETE /api/v1/service-accounts/:name",
    ({ serviceAccounts }) => serviceAccounts.remove("a b"),
  ],
  "bindings.list": ["GET /api/v1/bindings", ({ bindings }) => bindings.list().page()],
  "bindings.add": ["POST /api/v1/bindings", ({ bindings }) => bindings.add(BINDING)],
  "bindings.remove": ["DELETE /api/v1/bindings", ({ bindings }) => bindings.remove(BINDING)],
  "access.methods": ["GET /api/v1/access/methods", ({ access }) => access.methods()],
  "access.policy": ["GET /api/v1/access/policy", ({ access }) => access.policy()],
  "access.setPolicy": ["PUT /api/v1/access/policy", ({ access }) => access.setPolicy({})],
  "access.whoami": ["GET /api/v1/access/whoami", ({ access }) => access.whoami()],
  "events.query": ["GET /api/v1/events/log", ({ events }) => events.query().page()],
  "events.follow": ["GET /api/v1/events/log", ({ events }) => events.follow().next()],
  "events.log": ["POST /api/v1/events/log", ({ events }) => events.log({ type: "TEST" })],
  "events.keys": ["GET /api/v1/events/log/keys", ({ events }) => events.keys()],
  "events.rotateKey": ["POST /api/v1/events/log/keys", ({ events }) => events.rotateKey()],
  "events.cosign": [
    "POST /api/v1/events/log/cosignatures",
    ({ events }) => events.cosign({ size: 1, signatures: "\u2014 w AAAA\n" }),
  ],
  "events.shred": ["POST /api/v1/events/log/shred", ({ events }) => events.shred("alice")],
  "events.checkpoint": ["GET /api/v1/events/log/checkpoint", ({ events }) => events.checkpoint()],
  "events.proof": ["GET /api/v1/events/log/proofs/:sequence", ({ events }) => events.proof("a b")],
  "events.entry": ["GET /api/v1/events/log/entries/:sequence", ({ events }) => events.entry("a b")],
  "events.tile": ["GET /api/v1/events/log/tile/*", ({ events }) => events.tile("tile/0/x001/000")],
  "events.consistency": [
    "GET /api/v1/events/log/consistency",
    ({ events }) => events.consistency(0, 1),
  ],
  "events.export": ["GET /api/v1/events/log/export", ({ events }) => events.export()],
  "webhooks.create": [
    "POST /api/v1/webhooks",
    ({ webhooks }) => webhooks.create({ url: "https://hooks.example.com/x" }),
  ],
  "webhooks.list": ["GET /api/v1/webhooks", ({ webhooks }) => webhooks.list()],
  "webhooks.remove": ["DELETE /api/v1/webhooks/:id", ({ webhooks }) => webhooks.remove("a b")],
  "webhooks.rotateSecret": [
    "POST /api/v1/webhooks/:id/rotate",
    ({ webhooks }) => webhooks.rotateSecret("a b"),
  ],
  "webhooks.retry": ["POST /api/v1/webhooks/:id/retry", ({ webhooks }) => webhooks.retry("a b")],
  "secrets.list": ["GET /api/v1/secrets", ({ secrets }) => secrets.list().page()],
  "secrets.get": ["GET /api/v1/secrets/:name", ({ secrets }) => secrets.get("a b")],
  "secrets.set": ["PUT /api/v1/secrets/:name", ({ secrets }) => secrets.set("contract", "x")],
  "secrets.remove": ["DELETE /api/v1/secrets/:name", ({ secrets }) => secrets.remove("a b")],
  "limits.list": ["GET /api/v1/limits", ({ limits }) => limits.list().page()],
  "limits.get": ["GET /api/v1/limits/:kind/:name", ({ limits }) => limits.get("key", "a b")],
  "limits.set": ["PUT /api/v1/limits/:kind/:name", ({ limits }) => limits.set("key", "a b", {})],
  "cluster.status": ["GET /api/v1/cluster/status", ({ cluster }) => cluster.status()],
  "cluster.metrics": ["GET /api/v1/cluster/metrics", ({ cluster }) => cluster.metrics()],
  "cluster.resources": ["GET /api/v1/cluster/resources", ({ cluster }) => cluster.resources()],
  "cluster.health": ["GET /health", ({ cluster }) => cluster.health()],
  "cluster.detailedHealth": ["GET /health/detailed", ({ cluster }) => cluster.detailedHealth()],
  "cluster.live": ["GET /livez", ({ cluster }) => cluster.live()],
  "cluster.transfer": [
    "POST /api/v1/cluster/transfer",
    ({ cluster }) => cluster.transfer("nobody"),
  ],
  "cluster.snapshot": ["POST /api/v1/cluster/snapshot", ({ cluster }) => cluster.snapshot()],
  "cluster.removeMaster": [
    "DELETE /api/v1/cluster/masters/:name",
    ({ cluster }) => cluster.removeMaster("a b"),
  ],
  "cluster.createJoinToken": [
    "POST /api/v1/cluster/join-tokens",
    ({ cluster }) => cluster.createJoinToken({ role: "worker", name: "w" }),
  ],
  "cluster.backup": ["GET /api/v1/cluster/backup", ({ cluster }) => cluster.backup()],
  "cluster.state": ["GET /api/v1/cluster/state", ({ cluster }) => cluster.state({ at: 1 })],
  "cluster.decision": [
    "GET /api/v1/cluster/state/jobs/:id/decision",
    ({ cluster }) => cluster.decision("a b", { at: 1 }),
  ],
  "cluster.endpoints": ["GET /api/v1/endpoints", ({ cluster }) => cluster.endpoints()],
  "cluster.openapi": ["GET /api/v1/openapi.json", ({ cluster }) => cluster.openapi()],
  "models.list": ["GET /api/v1/models", ({ models }) => models.list()],
  "models.get": ["GET /api/v1/models/:id", ({ models }) => models.get("a b")],
  "models.register": [
    "POST /api/v1/models",
    ({ models }) => models.register({ id: "contract", source: "builtin://tiny" }),
  ],
  "models.scale": [
    "PUT /api/v1/models/:id/scaling",
    ({ models }) => models.scale("a b", { replicas: 1 }),
  ],
  "models.remove": ["DELETE /api/v1/models/:id", ({ models }) => models.remove("a b")],
  "models.pull": ["POST /api/v1/models/:id/pull", ({ models }) => models.pull("a b").next()],
  "chat.stream": [
    "POST /api/v1/chat/completions",
    ({ chat }) => chat.stream({ model: "none", messages: [{ role: "user", content: "?" }] }).next(),
  ],
  "completions.create": [
    "POST /api/v1/completions",
    ({ completions }) => completions.create({ model: "none", prompt: "?" }),
  ],
  "completions.start": [
    "POST /api/v1/completions",
    ({ completions }) => completions.start({ model: "none", prompt: "?" }),
  ],
  "completions.retrieve": [
    "GET /api/v1/completions/:id",
    ({ completions }) => completions.retrieve("a b"),
  ],
  "completions.cancel": [
    "DELETE /api/v1/completions/:id",
    ({ completions }) => completions.cancel("a b"),
  ],
  "embeddings.create": [
    "POST /api/v1/embeddings",
    ({ embeddings }) => embeddings.create({ model: "none", input: "?" }),
  ],
  "messages.create": [
    "POST /api/v1/messages",
    ({ messages }) => messages.create({ model: "none", max_tokens: 1, messages: [ASKED] }),
  ],
  "messages.countTokens": [
    "POST /api/v1/messages/count_tokens",
    ({ messages }) => messages.countTokens({ model: "none", messages: [ASKED] }),
  ],
  "moderations.create": [
    "POST /api/v1/moderations",
    ({ moderations }) => moderations.create({ model: "none" as never, input: "?" }),
  ],
  "rerank.create": [
    "POST /api/v1/rerank",
    ({ rerank }) => rerank.create({ model: "none", query: "?", documents: ["!"] }),
  ],
  "tokens.tokenize": [
    "POST /api/v1/tokenize",
    ({ tokens }) => tokens.tokenize({ model: "none", prompt: "?" }),
  ],
  "tokens.detokenize": [
    "POST /api/v1/detokenize",
    ({ tokens }) => tokens.detokenize({ model: "none", tokens: [5] }),
  ],
  "tokens.applyTemplate": [
    "POST /api/v1/apply-template",
    ({ tokens }) => tokens.applyTemplate({ model: "none", messages: [ASKED] }),
  ],
  "messages.stream": [
    "POST /api/v1/messages",
    ({ messages }) => messages.stream({ model: "none", max_tokens: 1, messages: [ASKED] }).next(),
  ],
  "responses.create": [
    "POST /api/v1/responses",
    ({ responses }) => responses.create({ model: "none", input: "?" }),
  ],
  "responses.stream": [
    "POST /api/v1/responses",
    ({ responses }) => responses.stream({ model: "none", input: "?" }).next(),
  ],
  "responses.retrieve": ["GET /api/v1/responses/:id", ({ responses }) => responses.retrieve("a b")],
  "responses.follow": [
    "GET /api/v1/responses/:id",
    ({ responses }) => responses.follow("a b", 3).next(),
  ],
  "responses.cancel": [
    "POST /api/v1/responses/:id/cancel",
    ({ responses }) => responses.cancel("a b"),
  ],
  "responses.delete": ["DELETE /api/v1/responses/:id", ({ responses }) => responses.delete("a b")],
  "responses.inputItems": [
    "GET /api/v1/responses/:id/input_items",
    ({ responses }) => responses.inputItems("a b", { limit: 2, order: "asc" }),
  ],
  "responses.inputTokens": [
    "POST /api/v1/responses/input_tokens",
    ({ responses }) => responses.inputTokens({ model: "none", input: "?" }),
  ],
  "files.create": [
    "POST /api/v1/files",
    ({ files }) => files.create({ file: new Blob(["{}"]), filename: "a", purpose: "batch" }),
  ],
  "files.list": ["GET /api/v1/files", ({ files }) => files.list({ limit: 1 })],
  "files.retrieve": ["GET /api/v1/files/:id", ({ files }) => files.retrieve("a b")],
  "files.content": ["GET /api/v1/files/:id/content", ({ files }) => files.content("a b")],
  "files.delete": ["DELETE /api/v1/files/:id", ({ files }) => files.delete("a b")],
  "batches.create": [
    "POST /api/v1/batches",
    async ({ batches }) => {
      const endpoint = "/v1/embeddings";
      const request = { input_file_id: "file-x", endpoint, completion_window: "24h" } as const;
      await expect(batches.create(request)).rejects.toMatchObject({ status: 400 });
    },
  ],
  "batches.list": ["GET /api/v1/batches", ({ batches }) => batches.list({ limit: 1 })],
  "batches.retrieve": ["GET /api/v1/batches/:id", ({ batches }) => batches.retrieve("a b")],
  "batches.cancel": ["POST /api/v1/batches/:id/cancel", ({ batches }) => batches.cancel("a b")],
  "conversations.create": [
    "POST /api/v1/conversations",
    ({ conversations }) => conversations.create({ metadata: { topic: "contract" } }),
  ],
  "conversations.retrieve": [
    "GET /api/v1/conversations/:id",
    ({ conversations }) => conversations.retrieve("a b"),
  ],
  "conversations.update": [
    "POST /api/v1/conversations/:id",
    ({ conversations }) => conversations.update("a b", {}),
  ],
  "conversations.delete": [
    "DELETE /api/v1/conversations/:id",
    ({ conversations }) => conversations.delete("a b"),
  ],
  "conversations.addItems": [
    "POST /api/v1/conversations/:id/items",
    ({ conversations }) => conversations.addItems("a b", [{ role: "user", content: "?" }]),
  ],
  "conversations.listItems": [
    "GET /api/v1/conversations/:id/items",
    ({ conversations }) => conversations.listItems("a b"),
  ],
  "conversations.getItem": [
    "GET /api/v1/conversations/:id/items/:item",
    ({ conversations }) => conversations.getItem("a b", "c d"),
  ],
  "conversations.deleteItem": [
    "DELETE /api/v1/conversations/:id/items/:item",
    ({ conversations }) => conversations.deleteItem("a b", "c d"),
  ],
};

type Call = (heddle: Heddle) => Promise<unknown>;
const ASKED = { role: "user" as const, content: "?" };
const BINDING = { kind: "user" as const, subject: "a b", role: "viewer" };
const PIPELINE = {
  name: "contract",
  steps: { only: { block: "shell", config: { command: "true" } } },
};
const SPEC = { name: "contract", command: "true" };

let api: JobApi;
let routes: string[];
beforeAll(async () => {
  api = await JobApi.start(new SecretKeys([Buffer.alloc(32, 5)]));
  const { body } = await api.call("GET", "/endpoints");
  routes = (body as unknown as { data: { method: string; path: string }[] }).data
    .filter(({ path }) => path.startsWith("/api/v1/") || /^\/(health|livez)(\/|$)/.test(path))
    .map(({ method, path }) => `${method} ${path}`);
});
afterAll(() => api.close());

describe("client library and route table", () => {
  it("have a method for each route", () => {
    const reached = Object.values(METHODS).map(([route]) => route);
    const known = [...new Set(reached)];
    // A test master serves no logs and has no plugins: its table lacks these routes.
    const panel = "GET /api/v1/custom/:plugin/console/:name";
    const served = [...new Set([...routes, "GET /api/v1/jobs/:id/logs", panel])];
    expect(known.sort()).toEqual(served.sort());
  });

  it("have a case above for each method", () => {
    const heddle = new Heddle({ endpoint: api.master.url });
    const methods = Object.entries(heddle).flatMap(([name, resource]) =>
      Object.getOwnPropertyNames(Object.getPrototypeOf(resource))
        .filter((method) => method !== "constructor")
        .map((method) => `${name}.${method}`),
    );
    expect(methods.sort()).toEqual(Object.keys(METHODS).sort());
  });

  it.each(Object.entries(METHODS))("agree on %s", async (_name, [route, call]) => {
    const sent: string[] = [];
    const fetchAndNote: typeof fetch = (input, init) => {
      sent.push(`${init?.method} ${new URL(String(input)).pathname}`);
      return fetch(input, init);
    };
    const { url: endpoint, adminKey } = api.master;
    const heddle = new Heddle({ endpoint, auth_token: adminKey, fetch: fetchAndNote });
    const refused = await call(heddle).then(
      () => undefined,
      (error: unknown) => error,
    );
    // What is asked for is not there, or a lone master cannot do it, but the route is.
    if (refused !== undefined) expect([404, 412]).toContain((refused as HeddleError).status);
    const [method, path = ""] = route.split(" ");
    const pattern = path.replace(/:\w+/g, "[^/]+").replace(/\*/, ".+");
    expect(sent[0]).toMatch(new RegExp(`^${method} ${pattern}$`));
    expect(sent[0]).not.toContain(" b");
  });

  it("report a spec's and a job's blockers in the client's format", async () => {
    const { url: endpoint, adminKey } = api.master;
    const { jobs } = new Heddle({ endpoint, auth_token: adminKey });
    const large = { ...SPEC, name: "large", resources: { gpu_count: 4 } };
    const { job_id: id } = await jobs.create(large);
    const ofJob = await jobs.explain(id);
    const ofSpec = await jobs.explain({ ...large, name: "larger" });
    expect(ofSpec).toMatchObject({ object: "dry_run", explanation: { nodes: { total: 0 } } });
    expect(ofJob).toMatchObject({ nodes: { total: 0 }, changes: expect.any(Array) });
    expect(await jobs.get(id)).toMatchObject({ explanation: ofJob, phase: /^(ACC|PEND)/ });
  });
});
