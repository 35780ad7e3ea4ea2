// holds: api-models, engine-template, key-models

import { NEWEST_VERSION, PLACES_STAGES } from "@heddle/control/cluster-version";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { replicaEntry } from "@heddle/scheduler/plan-entry";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { eventsOf, postChat, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

async function register(body: Record<string, unknown>) {
  return send(server, "POST", "/api/v1/models", body);
}

describe("models", () => {
  it("are one list for the official client and the orchestration API", async () => {
    const openai = new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey: server.adminKey });
    const listed = [];
    for await (const model of openai.models.list()) listed.push(model);
    expect(listed[0]).toMatchObject({
      id: "FamilyA-1-2B",
      object: "model",
      created: 1_700_000_000,
      owned_by: "heddle",
      family: "A",
      context_window: 131_072,
      chat_template: null,
      availability: "Free (Beta)",
      intended_use: "tests",
      backing: "tiny random model (cpu)",
      stand_in: true,
      served_context_tokens: null,
      status: "unplaced",
      replicas: [],
    });
    expect(await openai.models.retrieve("FamilyA-1-2B")).toEqual(listed[0]);
    await expect(openai.models.retrieve("nope")).rejects.toMatchObject({
      status: 404,
      code: "model_not_found",
    });
  });

  it("show the best phase of their replicas", async () => {
    server.directory.views = [replicaOn("w1", "tiny", "pulling"), replicaOn("w2", "tiny", "ready")];
    const reply = await send(server, "GET", "/api/v1/models/FamilyA-1-2B");
    expect(await reply.json()).toMatchObject({
      status: "ready",
      replicas: [
        { node: "w1", phase: "pulling", pulled_bytes: 3, total_bytes: 9 },
        { node: "w2", phase: "ready" },
      ],
    });
    server.directory.views = [];
  });

  it("show the origin of the chat template once a replica is ready", async () => {
    const show = async () => (await send(server, "GET", "/api/v1/models/FamilyA-1-2B")).json();
    server.directory.views = [replicaOn("w1", "tiny", "loading", 512)];
    expect(await show()).toMatchObject({ chat_template: null });
    server.directory.views = [
      replicaOn("w1", "tiny", "ready"),
      replicaOn("w2", "tiny", "ready", 512),
    ];
    expect(await show()).toMatchObject({
      chat_template: "plain",
      replicas: [{ chat_template: null }, { chat_template: "plain" }],
    });
    server.directory.views = [];
  });

  it("show the context of all ready replicas, which bounds max_tokens", async () => {
    server.directory.views = [
      replicaOn("w1", "tiny", "ready", 8192),
      replicaOn("w2", "tiny", "ready", 4096),
      replicaOn("w3", "tiny", "loading", 512),
      replicaOn("w4", "other", "ready", 256),
    ];
    const reply = await send(server, "GET", "/api/v1/models/FamilyA-1-2B");
    expect(await reply.json()).toMatchObject({
      context_window: 131_072,
      served_context_tokens: 4096,
    });
    const hello = { model: "FamilyA-1-2B", messages: [{ role: "user", content: "hi" }] };
    expect((await postChat(server, { ...hello, max_tokens: 4096 })).status).toBe(200);
    const refused = await postChat(server, { ...hello, max_tokens: 4097 });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({
      error: { param: "max_tokens", message: expect.stringContaining("4096 tokens") },
    });
    server.directory.views = [];
  });

  it("are registered, answer, share a deployment, and are removed with it", async () => {
    const weights = { sources: ["https://host/w/Small-Q8.gguf"], sha256: "ab".repeat(32) };
    const first = await register({ id: "org/small", context_window: 2048, weights });
    expect(first.status).toBe(200);
    expect(await first.json()).toMatchObject({
      id: "org/small",
      weights: { file: "Small-Q8.gguf" },
    });
    expect((await register({ id: "small-alias", weights })).status).toBe(200);
    const { deployments, models } = server.control.state;
    expect(models.get("org/small")?.deployment).toBe(models.get("small-alias")?.deployment);
    expect(deployments.size).toBe(2);
    const repeated = await register({ id: "org/small", context_window: 2048, weights });
    expect(repeated.status).toBe(200);
    const removed = await send(server, "DELETE", "/api/v1/models/org%2Fsmall");
    expect(await removed.json()).toEqual({ id: "org/small", object: "model", deleted: true });
    expect(deployments.size).toBe(2);
    await send(server, "DELETE", "/api/v1/models/small-alias");
    expect(deployments.size).toBe(1);
    expect((await send(server, "DELETE", "/api/v1/models/small-alias")).status).toBe(404);
  });

  it("of one digest and other sources are served apart: the first sources may be dead", async () => {
    const sha256 = "cd".repeat(32);
    const from = (host: string) => ({ sources: [`https://${host}/w/apart.gguf`], sha256 });
    await register({ id: "apart-dead", weights: from("dead.example") });
    expect((await register({ id: "apart", weights: from("host") })).status).toBe(200);
    const { deployments, models } = server.control.state;
    const { spec } = deployments.get(models.get("apart")?.deployment ?? "") ?? {};
    expect(spec?.weights?.sources).toEqual(from("host").sources);
    for (const id of ["apart", "apart-dead"]) await send(server, "DELETE", `/api/v1/models/${id}`);
  });

  it("under a taken id with other properties are a conflict", async () => {
    const reply = await register({ id: "FamilyA-1-2B", source: "builtin://tiny?seed=9" });
    expect(reply.status).toBe(409);
    expect(await reply.json()).toMatchObject({ error: { code: "conflict" } });
  });

  it("off a key's list can be neither registered nor removed with it", async () => {
    const scopes = ["models:read", "models:deploy"];
    const made = await send(server, "POST", "/api/v1/keys", {
      name: "deployer",
      scopes,
      models: ["mine"],
    });
    expect(made.status).toBe(200);
    const { key } = (await made.json()) as { key: string };
    const source = "builtin://tiny?seed=21";
    for (const [method, path, body] of [
      ["POST", "/api/v1/models", { id: "yours", source }],
      ["DELETE", "/api/v1/models/FamilyA-1-2B", undefined],
      ["POST", "/api/v1/models/FamilyA-1-2B/pull", undefined],
    ] as const) {
      const reply = await send(server, method, path, body, { key });
      expect([method, path, reply.status]).toEqual([method, path, 403]);
      expect(await reply.json()).toMatchObject({ error: { code: "permission_denied" } });
    }
    expect(server.control.state.models.has("FamilyA-1-2B")).toBe(true);
    const mine = await send(server, "POST", "/api/v1/models", { id: "mine", source }, { key });
    expect(mine.status).toBe(200);
    const removed = await send(server, "DELETE", "/api/v1/models/mine", undefined, { key });
    expect(removed.status).toBe(200);
  });

  it("take the file's name from a source that is pinned to a commit", async () => {
    const sources = ["hf://org/repo/Some-Q4.gguf@0123abc"];
    const reply = await register({ id: "pinned", weights: { sources, sha256: "cd".repeat(32) } });
    expect(await reply.json()).toMatchObject({ weights: { file: "Some-Q4.gguf", sources } });
  });

  it("say why the placement `auto` does not divide them", async () => {
    const sources = ["builtin://tiny?seed=31"];
    const weights = { sources, size_bytes: 1_000 };
    const reasonOf = async (body: Record<string, unknown>) => {
      expect((await register({ id: "open", weights, ...body })).status).toBe(200);
      const reply = await send(server, "GET", "/api/v1/models/open");
      await send(server, "DELETE", "/api/v1/models/open");
      return ((await reply.json()) as { undivided: string | null }).undivided;
    };
    expect(await reasonOf({})).toBeNull();
    expect(await reasonOf({ placement: "whole", options: { kv_dtype: "q8_0" } })).toBeNull();
    expect(await reasonOf({ weights: { sources } })).toMatch(/size_bytes/);
    expect(await reasonOf({ resources: { gpu_count: 1 } })).toMatch(/GPUs of one node/);
    expect(await reasonOf({ options: { kv_dtype: "q8_0" } })).toMatch(/kv_dtype/);
    const decoding = { deterministic: "always" };
    expect(await reasonOf({ options: { decoding } })).toMatch(/deterministic/);
  });

  it("are not divided over GPUs before all masters can do so", async () => {
    const { cluster } = server.control.state;
    const body = { id: "gpus", source: "builtin://tiny?seed=33", placement: "sharded" };
    const placed = { ...body, resources: { gpu_count: 1 } };
    cluster.set("version", PLACES_STAGES - 1);
    const refused = await register(placed);
    cluster.set("version", NEWEST_VERSION);
    expect(refused.status).toBe(409);
    expect(await refused.json()).toMatchObject({ error: { param: "placement" } });
    expect((await register(placed)).status).toBe(200);
    await send(server, "DELETE", "/api/v1/models/gpus");
  });

  it.each<[string, Record<string, unknown>]>([
    ["id", { source: "builtin://tiny" }],
    ["id", { id: "a b", source: "builtin://tiny" }],
    ["weights", { id: "a" }],
    ["source", { id: "a", source: "ftp://x/y.gguf" }],
    ["source", { id: "a", source: "builtin://mm", resources: { gpu_count: 1 } }],
    ["weights.sources[1]", { id: "a", weights: { sources: ["builtin://tiny", "oci://x"] } }],
    ["source", { id: "a", source: "builtin://tiny", weights: { sources: ["builtin://tiny"] } }],
    ["weights.sha256", { id: "a", source: "https://host/x.gguf" }],
    ["weights.file", { id: "a", source: "file:///tmp/model.bin" }],
    ["options.threads", { id: "a", source: "builtin://tiny", options: { threads: 0 } }],
    ["replicas", { id: "a", source: "builtin://tiny", replicas: "some" }],
    [
      "options.gpu_layers",
      {
        id: "a",
        source: "builtin://tiny",
        placement: "sharded",
        resources: { gpu_count: 1 },
        options: { gpu_layers: 0 },
      },
    ],
    ["resources.gpu_count", { id: "a", source: "builtin://tiny", resources: { gpu_count: 17 } }],
    ["placement", { id: "a", source: "builtin://tiny", placement: "split" }],
    [
      "replicas",
      { id: "a", source: "builtin://tiny", placement: "sharded", replicas: "every-worker" },
    ],
    [
      "options.kv_dtype",
      { id: "a", source: "builtin://tiny", placement: "sharded", options: { kv_dtype: "q8_0" } },
    ],
    [
      "options.decoding.deterministic",
      {
        id: "a",
        source: "builtin://tiny",
        placement: "sharded",
        options: { decoding: { deterministic: "always" } },
      },
    ],
    ["max_stages", { id: "a", source: "builtin://tiny", placement: "whole", max_stages: 2 }],
    ["max_stages", { id: "a", source: "builtin://tiny", max_stages: 17 }],
    [
      "options.tensor_split",
      { id: "a", source: "builtin://tiny", options: { tensor_split: [1, 1] } },
    ],
    ["options.main_gpu", { id: "a", source: "builtin://tiny", options: { main_gpu: 1 } }],
    [
      "replicas",
      {
        id: "a",
        source: "builtin://tiny",
        replicas: "every-worker",
        resources: { gpu_count: 1 },
      },
    ],
    [
      "options.device",
      {
        id: "a",
        source: "builtin://tiny",
        options: { device: "0" },
        resources: { gpu_count: 1 },
      },
    ],
  ])("with a fault in %s are 400: %j", async (param, body) => {
    const reply = await register(body);
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ error: { param } });
  });

  it("that need a GPU show what they wait for until they are placed", async () => {
    const resources = { gpu_count: 1, gpu_type: "H100" };
    const reply = await register({ id: "on-gpu", source: "builtin://tiny", resources });
    expect(reply.status).toBe(200);
    const onGpu = async () => (await send(server, "GET", "/api/v1/models/on-gpu")).json();
    await expect.poll(onGpu, { timeout: 30_000 }).toMatchObject({
      status: "unplaced",
      waiting_for: [expect.stringMatching(/^NoNodes: no worker takes jobs: none has joined, or /)],
    });
    const offer = nodeOffer("gpu-node");
    await server.control.propose({ type: "node.join", atMs: 1, offer });
    const { deployment } = server.control.state.models.get("on-gpu")!;
    const starts = [
      { entry: replicaEntry(deployment), placements: [{ nodeId: offer.id, devices: [3] }] },
    ];
    await server.control.propose({
      type: "plan.commit",
      atMs: 1,
      basedOnIndex: 0,
      overcommitRatio: 1,
      acknowledgeMs: 1,
      admitted: [],
      unsatisfiable: [],
      starts,
      preemptions: [],
      expired: [],
    });
    await expect.poll(onGpu, { timeout: 30_000 }).toMatchObject({ waiting_for: [] });
    const worker = await send(server, "GET", `/api/v1/workers/${offer.id}`);
    expect(await worker.json()).toMatchObject({
      jobs: { serving: [{ deployment, devices: [3] }] },
    });
    const figures = await send(server, "GET", "/api/v1/cluster/metrics");
    expect(await figures.json()).toMatchObject({ jobs: { gpus: { total: 4, held: 1 } } });
    await send(server, "DELETE", "/api/v1/models/on-gpu");
  });

  it("stream the progress of a pull as events", async () => {
    const reply = await send(server, "POST", "/api/v1/models/FamilyA-1-2B/pull");
    expect(reply.headers.get("content-type")).toContain("text/event-stream");
    const events = eventsOf(await reply.text());
    expect(events.map(({ type }) => type)).toEqual(["progress", "progress", "done"]);
    expect(JSON.parse(events[1]?.data ?? "")).toEqual({
      pulled_bytes: 10,
      total_bytes: 10,
      source: "builtin://tiny",
      done: true,
    });
    expect((await send(server, "POST", "/api/v1/models/none/pull")).status).toBe(404);
  });
});
