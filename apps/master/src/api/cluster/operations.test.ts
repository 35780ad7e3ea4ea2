// holds: api-health

import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import type { Route } from "@heddle/contracts/api/cluster";
import type { Page } from "@heddle/contracts/api/parameters";
import type { Worker } from "@heddle/contracts/api/workers";
import type { OpenApiDocument } from "@heddle/contracts/openapi";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { postChat, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { VERSION } from "../../config/version.ts";
import type { NodeView } from "../../nodes/node-directory.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
  server.directory.views = [replicaOn("w1", "tiny", "ready")];
});
afterAll(() => server.master.close());

const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "a b c" }] };

async function publicText(path: string): Promise<string> {
  return (await fetch(server.url + path)).text();
}

describe("operational paths", () => {
  // holds: jobs-openapi
  it("GET /api/v1/openapi.json is public and has each route", async () => {
    const reply = await fetch(`${server.url}/api/v1/openapi.json`);
    expect(reply.headers.get("content-type")).toContain("application/json");
    const { paths } = (await reply.json()) as OpenApiDocument;
    const documented = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const list = await (await send(server, "GET", "/api/v1/endpoints")).json();
    const routes = (list as { data: Route[] }).data.map(({ method, path }) => {
      return `${method} ${path.replace(/:(\w+)/g, "{$1}").replace("*", "{path}")}`;
    });
    expect(documented.sort()).toEqual(routes.sort());
  });

  it("/health has status, version and uptime", async () => {
    const health = JSON.parse(await publicText("/health")) as Record<string, unknown>;
    expect(health).toEqual({ status: "ok", version: VERSION, uptime: expect.any(Number) });
  });

  // holds: ops-restore-nodes
  it("health, metrics and the node list show a node that refuses the leader", async () => {
    const [known] = server.directory.views;
    const why = "this node follows a later incarnation";
    const refusing = { ...replicaOn("w2", "tiny", "ready"), state: "refusing", refusesLeader: why };
    server.directory.views = [...server.directory.views, refusing as NodeView];
    const detail = expect.stringContaining("refuse this master's cluster or its leader: 1");
    expect(JSON.parse(await publicText("/health"))).toMatchObject({
      status: "degraded",
      refusing_nodes: 1,
      detail,
    });
    expect(JSON.parse(await publicText("/health/detailed"))).toMatchObject({
      status: "degraded",
      components: { nodes: { status: "degraded", refusing: 1 } },
    });
    const metrics = await publicText("/metrics");
    expect(metrics).toMatch(/heddle_cluster_nodes_refusing\{.*kind="worker".*\} 1\n/);
    expect(metrics).toMatch(/heddle_cluster_nodes_refusing\{.*kind="parameter_server".*\} 0\n/);
    const one = await send(server, "GET", "/api/v1/workers/w2");
    expect(await one.json()).toMatchObject({ status: "refusing", refuses_leader: why });
    server.directory.views = known ? [known] : [];
    expect(JSON.parse(await publicText("/health"))).toMatchObject({ status: "ok" });
  });

  it("the node list says why a worker takes no tasks", async () => {
    const [known] = server.directory.views;
    const why = "the executor p.e makes no offer";
    server.directory.views = [{ ...known, executorFault: why } as NodeView];
    const { data } = (await (await send(server, "GET", "/api/v1/workers")).json()) as {
      data: object[];
    };
    expect(data).toMatchObject([{ executor_fault: why }]);
    server.directory.views = known ? [known] : [];
  });

  it("/health/detailed has measured values", async () => {
    const detailed = JSON.parse(await publicText("/health/detailed")) as {
      timestamp: string;
      resource_usage: Record<string, number>;
    };
    expect(detailed).toMatchObject({
      status: "ok",
      version: VERSION,
      components: {
        api: { status: "ok", in_flight: 0 },
        control: { status: "ok" },
        workers: { status: "ok", attached: 1 },
      },
    });
    expect(Date.parse(detailed.timestamp)).toBeGreaterThan(Date.now() - 60_000);
    const usage = detailed.resource_usage;
    for (const name of ["cpu_percent", "memory_percent", "disk_percent"]) {
      expect(usage[name]).toBeGreaterThanOrEqual(0);
      expect(usage[name]).toBeLessThanOrEqual(100);
    }
    expect(usage["memory_percent"]).toBeGreaterThan(0);
  });

  it("/healthz, /livez and /readyz answer probes", async () => {
    expect(await publicText("/healthz")).toBe("ok\n");
    expect((await fetch(`${server.url}/healthz`, { method: "HEAD" })).status).toBe(200);
    expect(await publicText("/livez")).toBe("ok\n");
    expect(await publicText("/readyz")).toBe("ok\n");
    expect(await publicText("/readyz?verbose")).toBe(
      "[+]api ok\n[+]control ok\n[+]quorum ok\nok\n",
    );
  });

  // holds: usage-metrics
  it("/metrics has vLLM's names, and equals the sum of the usage rows", async () => {
    await (await postChat(server, hello)).text();
    await (await postChat(server, { ...hello, stream: true })).text();
    const { text } = await server.addKey({ limits: { requestsPerMinute: 1 } });
    await (await postChat(server, hello, { key: text })).text();
    await (await postChat(server, hello, { key: text })).text();
    const metrics = await publicText("/metrics");
    const value = (name: string): number =>
      Number(
        new RegExp(`^${name}\\{[^}]*model_name="FamilyA-1-2B"[^}]*\\} (\\S+)$`, "m").exec(
          metrics,
        )?.[1],
      );
    const sum = (pick: (row: (typeof server.rows)[number]) => number): number =>
      server.rows.reduce((total, row) => total + pick(row), 0);
    expect(value("vllm:prompt_tokens_total")).toBe(sum((row) => row.promptTokens));
    expect(value("vllm:generation_tokens_total")).toBe(sum((row) => row.completionTokens));
    expect(value("vllm:prefix_cache_hits_total")).toBe(sum((row) => row.cachedTokens));
    expect(value("vllm:prefix_cache_queries_total")).toBe(sum((row) => row.promptTokens));
    expect(value("vllm:num_requests_running")).toBe(0);
    expect(value("vllm:num_requests_waiting")).toBe(0);
    expect(metrics).toMatch(/^heddle_replica_requests_running\{.*\} 2$/m);
    expect(metrics).toMatch(/^heddle_replica_requests_waiting\{.*\} 1$/m);
    expect(value("vllm:kv_cache_usage_perc")).toBe(0.25);
    expect(value("vllm:request_success_total")).toBe(3);
    for (const name of [
      "time_to_first_token",
      "inter_token_latency",
      "e2e_request_latency",
      "request_queue_time",
    ]) {
      expect(value(`vllm:${name}_seconds_count`)).toBeGreaterThan(0);
    }
    expect(value("heddle_gateway_overhead_seconds_count")).toBe(3);
    expect(metrics).toContain('code="rate_limit_exceeded"} 1');
  });

  // holds: usage-metrics
  it("/metrics counts each token of an answer once, while it streams", async () => {
    const own = await startTestMaster();
    own.dispatch.script.tokenDelayMs = 5;
    const abort = new AbortController();
    const body = { ...hello, stream: true, max_tokens: 5000 };
    const stream = await postChat(own, body, { signal: abort.signal });
    await eventually(() => own.dispatch.generatedTokens >= 100);
    const value = async (name: string): Promise<number> => {
      const metrics = await (await fetch(`${own.url}/metrics`)).text();
      return Number(new RegExp(`^${name}\\{.*\\} (\\S+)$`, "m").exec(metrics)?.[1] ?? 0);
    };
    // Delivery lags generation by at most the token in flight.
    expect(await value("vllm:generation_tokens_total")).toBeGreaterThanOrEqual(99);
    expect(await value("vllm:prompt_tokens_total")).toBeGreaterThan(0);
    expect(await value("vllm:inter_token_latency_seconds_count")).toBeGreaterThanOrEqual(98);
    abort.abort();
    await expect(stream.text()).rejects.toThrow();
    await eventually(() => own.rows.length === 1);
    const [row] = own.rows;
    expect(row?.completionTokens).toBeGreaterThanOrEqual(99);
    expect(await value("vllm:generation_tokens_total")).toBe(row?.completionTokens);
    expect(await value("vllm:prompt_tokens_total")).toBe(row?.promptTokens);
    expect(await value("vllm:prefix_cache_queries_total")).toBe(row?.promptTokens);
    expect(await value("vllm:prefix_cache_hits_total")).toBe(row?.cachedTokens);
    await own.master.close();
  });

  it("/metrics counts calls refused for lack of slots", async () => {
    const full = await startTestMaster({ maxCalls: 1 });
    full.dispatch.script.tokenDelayMs = 20;
    const abort = new AbortController();
    const first = postChat(full, { ...hello, max_tokens: 5000 }, { signal: abort.signal });
    await eventually(() => full.dispatch.running === 1);
    for (let i = 0; i < 3; i++) expect((await postChat(full, hello)).status).toBe(503);
    abort.abort();
    await expect(first).rejects.toThrow();
    const metrics = await (await fetch(`${full.url}/metrics`)).text();
    expect(metrics).toMatch(/^heddle_requests_failed_total\{model_name="",code="overloaded"\} 3$/m);
    await full.master.close();
  });

  // holds: usage-model-removed
  it("/metrics drops the series of a removed model, also of a call that still runs", async () => {
    const own = await startTestMaster();
    const register = { source: "builtin://tiny?seed=9", id: "mine" };
    expect((await send(own, "POST", "/api/v1/models", register)).status).toBe(200);
    const metrics = async () => (await fetch(`${own.url}/metrics`)).text();
    await (await postChat(own, { ...hello, model: "mine" })).text();
    await (await postChat(own, hello)).text();
    expect((await postChat(own, { ...hello, model: "mine", n: 0 })).status).toBe(400);
    own.dispatch.script.tokenDelayMs = 5;
    const abort = new AbortController();
    const body = { ...hello, model: "mine", stream: true, max_tokens: 1000 };
    const open = await postChat(own, body, { signal: abort.signal });
    expect(open.status).toBe(200);
    await eventually(() => own.dispatch.generatedTokens >= 20);
    expect(await metrics()).toContain('model_name="mine"');
    expect((await send(own, "DELETE", "/api/v1/models/mine")).status).toBe(200);
    expect(await metrics()).not.toContain('"mine"');
    abort.abort();
    await expect(open.text()).rejects.toThrow();
    await eventually(() => own.rows.filter(({ model }) => model === "mine").length === 2);
    expect(await metrics()).not.toContain('"mine"');
    expect(await metrics()).toMatch(
      /^vllm:request_success_total\{model_name="FamilyA-1-2B",.*\} 1$/m,
    );
    await own.master.close();
  });
});

describe("the orchestration API", () => {
  it("lists attached workers", async () => {
    const list = await send(server, "GET", "/api/v1/workers");
    expect(await list.json()).toMatchObject({
      object: "list",
      data: [{ id: "w1", status: "ready", cpu_percent: 12, replicas: [{ phase: "ready" }] }],
    });
    const one = await send(server, "GET", "/api/v1/workers/w1");
    expect(await one.json()).toMatchObject({ id: "w1", object: "worker" });
    const none = await send(server, "GET", "/api/v1/workers/w9");
    expect(none.status).toBe(404);
    expect(none.headers.get("content-type")).toContain("application/problem+json");
  });

  it("the node list: pages in the order of ids, also while nodes come and go", async () => {
    const before = server.directory.views;
    const views = ["w3", "w1", "w2"].map((id) => replicaOn(id, "tiny", "ready"));
    server.directory.views = views;
    const heddle = new Heddle({ endpoint: server.url, auth_token: server.adminKey });
    const read = await heddle.workers.list({ pageSize: 1 });
    expect(read.map(({ id }) => id)).toEqual(["w1", "w2", "w3"]);
    const page = async (query: string) => {
      const reply = await send(server, "GET", `/api/v1/workers?${query}`);
      return (await reply.json()) as Page<Worker>;
    };
    const first = await page("limit=2");
    expect(first).toMatchObject({ data: [{ id: "w1" }, { id: "w2" }], has_more: true });
    server.directory.views = views.filter(({ id }) => id !== "w2");
    const rest = await page(`limit=2&cursor=${first.next_cursor}`);
    expect(rest).toMatchObject({ data: [{ id: "w3" }], has_more: false, next_cursor: null });
    const other = await send(server, "GET", "/api/v1/workers?limit=2&cursor=other");
    expect(other.status).toBe(400);
    server.directory.views = before;
  });

  it("shows the cluster's status", async () => {
    const reply = await send(server, "GET", "/api/v1/cluster/status");
    expect(await reply.json()).toMatchObject({
      status: "ok",
      leader: "master-test",
      workers: { attached: 1 },
      models: { registered: 1 },
      replicas: { ready: 1, total: 1 },
      requests: { in_flight: 0, running: 2, waiting: 1 },
    });
  });

  it("lists its own endpoints with their permissions", async () => {
    const reply = await send(server, "GET", "/api/v1/endpoints");
    const { data } = (await reply.json()) as { data: Record<string, string>[] };
    expect(data).toContainEqual({
      method: "POST",
      path: "/api/v1/chat/completions",
      permission: "inference:create",
      summary: expect.any(String),
    });
  });
});
