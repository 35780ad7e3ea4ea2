import { taskKey } from "@heddle/control/jobs/records/records";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../test/http.ts";
import { JobApi } from "../../test/job-api.ts";
import { SECRETS } from "../../test/test-master.ts";
import { commandForTask } from "./tasks/task-orders.ts";

let api: JobApi;
beforeAll(async () => {
  api = await JobApi.start();
  await api.join("a", {
    executors: ["training", "process"],
    algorithms: ["ppo", "weave"],
    environments: ["CartPole-v1", "Acrobot-v1"],
  });
});
afterAll(() => api.close());

const small = { cpu_cores: 0.1, memory_gb: 0.1 };
let count = 0;

/** The body of a training job. */
function training(algorithm: string, config: Record<string, unknown> = {}) {
  return { name: `t${count++}`, algorithm, config, resources: small };
}

function languageModel(config: Record<string, unknown> = {}) {
  const shape = { program: "language_model", data: "/data", total_steps: 10 };
  return training("weave", { ...shape, ...config });
}

const server = (id: string) => ({ id, name: id, address: `${id}:1`, incarnation: "1" });

// holds: train-configs
describe("a training job's config", () => {
  it("is refused with a pointer for each fault", async () => {
    const config = { learning_rate: -1, num_env: 4, num_minibatches: 3 };
    const { status, body } = await api.call("POST", "/jobs", training("ppo", config));
    expect(status).toBe(422);
    expect(body?.errors).toMatchObject([
      { pointer: "#/config/learning_rate" },
      { pointer: "#/config/num_env" },
    ]);
    const sizes = await api.call("POST", "/jobs", training("ppo", { num_minibatches: 3 }));
    expect(sizes.body?.errors).toMatchObject([
      { pointer: "#/config/num_minibatches", detail: expect.stringContaining("512 must be") },
    ]);
  });

  it("is refused if its tasks cannot agree on it", async () => {
    const body = { ...training("ppo", { target_kl: 0.02 }), tasks: 2 };
    const { status, body: reply } = await api.call("POST", "/jobs", body);
    expect(status).toBe(422);
    expect(reply?.errors).toMatchObject([{ pointer: "#/config/target_kl" }]);
  });

  it("is refused if a resume would lose all training, or a plugin's seed is invalid", async () => {
    for (const [body, pointer] of [
      [training("ppo", { compression: "topk" }), "#/config/compression"],
      [training("ppo", { constructor: 1 }), "#/config/constructor"],
      [training("evolution", { seed: -4, own: 1 }), "#/config/seed"],
    ] as const) {
      const { status, body: reply } = await api.call("POST", "/jobs", body);
      expect(status).toBe(422);
      const errors = reply?.errors as { readonly pointer: string }[];
      expect(errors.map((error) => error.pointer)).toContain(pointer);
    }
  });

  it("is refused if it needs cuda without a GPU, also in a dry run", async () => {
    const body = training("ppo", { device: "cuda" });
    for (const path of ["/jobs", "/jobs?dry_run=true"]) {
      const { status, body: reply } = await api.call("POST", path, body);
      expect(status).toBe(422);
      expect(reply?.errors).toMatchObject([
        { pointer: "#/config/device", detail: expect.stringContaining("`resources.gpu_count`") },
      ]);
    }
    const malformed = { ...body, resources: { ...small, gpu_count: "one" } };
    expect((await api.call("POST", "/jobs", malformed)).body?.errors).toMatchObject([
      { pointer: "#/resources/gpu_count" },
    ]);
    const asking = {
      ...training("ppo", { device: "cuda" }),
      resources: { ...small, gpu_count: 1 },
    };
    expect((await api.call("POST", "/jobs?dry_run=true", asking)).status).toBe(200);
  });

  it("is free if a user's own program receives it", async () => {
    const body = { ...training("ppo", { anything: 1 }), command: "true" };
    expect((await api.call("POST", "/jobs?dry_run=true", body)).status).toBe(200);
  });
});

describe("a training job", () => {
  // holds: train-unknown
  it("is refused if no worker has its algorithm or environment, listing those on offer", async () => {
    for (const [body, pointer, detail] of [
      [
        training("sac"),
        "#/algorithm",
        "no worker has the algorithm sac; the workers have: ppo, weave",
      ],
      [
        training("ppo", { environment: "Atlantis-v1" }),
        "#/config/environment",
        "no worker has the environment Atlantis-v1; the workers have: Acrobot-v1, CartPole-v1",
      ],
      [training("ppo", { env_id: "Atlantis-v1" }), "#/config/env_id", "environment Atlantis-v1"],
    ] as const) {
      for (const path of ["/jobs", "/jobs?dry_run=true"]) {
        const { status, body: reply } = await api.call("POST", path, body);
        expect(status).toBe(422);
        expect(reply?.errors).toMatchObject([{ pointer, detail: expect.stringContaining(detail) }]);
      }
    }
    const known = training("ppo", { environment: "Acrobot-v1" });
    expect((await api.call("POST", "/jobs?dry_run=true", known)).status).toBe(200);
    // A user's own program accepts any config.
    const own = { ...training("sac"), command: "true" };
    expect((await api.call("POST", "/jobs?dry_run=true", own)).status).toBe(200);
  });

  // holds: train-unknown
  it("is accepted while an offer is unknown, and fails if none has its algorithm", async () => {
    await api.join("silent", { executors: ["training"], algorithms: undefined });
    const id = await api.submit({ ...training("sac"), command: undefined });
    await api.reached(id, "failed");
    const { body } = await api.call("GET", `/jobs/${id}`);
    expect(body?.failure).toMatchObject({
      reason: "Unsatisfiable",
      message:
        "AlgorithmUnavailable: no worker offers the algorithm sac; the workers offer: ppo, weave",
    });
  });

  it("waits for a parameter server, says so, and gets its shards' locations", async () => {
    const body = training("ppo", { parameter_servers: 3 });
    const dry = await api.call("POST", "/jobs?dry_run=true", body);
    expect(dry.body).toMatchObject({ verdict: "would_wait" });
    const id = await api.submit({ ...body, command: undefined });
    await api.reached(id, "pending");
    const waiting = await api.call("GET", `/jobs/${id}`);
    expect(waiting.body?.explanation?.blockers).toMatchObject([
      {
        reason: "AffinityNoMatch",
        message: "AffinityNoMatch: parameter_server_shards 3 requested, 0 free of 0",
      },
    ]);
    await api.propose({ type: "server.join", server: server("q") });
    await api.propose({ type: "server.join", server: server("p") });
    await api.run(id);
    const { body: job } = await api.call("GET", `/jobs/${id}`);
    expect(job).toMatchObject({
      executor: "training",
      training: {
        shards: [
          { shard: 0, parameter_server: "p", name: "p", address: "p:1", state: "ready" },
          { shard: 1, parameter_server: "q" },
          { shard: 2, parameter_server: "p" },
        ],
      },
    });
    await api.call("DELETE", `/jobs/${id}`);
    await api.report(id, "exited", { endedAtMs: 1 });
  });

  it("is refused if it needs more shards than all parameter servers hold", async () => {
    const tooMany = languageModel({
      parameter_servers: 17,
      fragments: 32,
      local_steps: 32,
      total_steps: 32,
    });
    for (const [body, pointer] of [
      [tooMany, "#/config/fragments"],
      [training("ppo", { parameter_servers: 513 }), "#/config/parameter_servers"],
    ] as const) {
      const { status, body: reply } = await api.call("POST", "/jobs", body);
      expect(status).toBe(422);
      const detail = expect.stringContaining(
        "the cluster's parameter servers (2) hold 512 at most",
      );
      expect(reply?.errors).toMatchObject([{ pointer, detail }]);
    }
  });

  // holds: train-awaited-server
  it("gets all servers at its start, lost ones too: any may have its checkpoint", async () => {
    for (const id of ["r", "s"]) await api.propose({ type: "server.join", server: server(id) });
    await api.propose({ type: "server.lost", serverIds: ["s"] });
    const id = await api.submit({ ...training("ppo"), command: undefined });
    await api.reached(id, "scheduled");
    const task = { jobId: id, attempt: 1, rank: 0 };
    const [{ nodeId } = { nodeId: "" }] = [...api.master.control.state.tasks.values()].filter(
      ({ jobId }) => jobId === id,
    );
    const reports = [{ ...task, phase: "leased" as const, rendezvous: "h:1" }];
    await api.propose({ type: "tasks.report", nodeId, reports });
    const { state } = api.master.control;
    const record = state.tasks.get(taskKey(id, 1, 0));
    const named = { ...task, incarnation: 0 };
    const none = { exit: null, progress: null, cluster: "" };
    const status = { task: named, phase: "leased", rendezvous: "h:1", ...none };
    const orderIn = (ms: number) =>
      record && commandForTask(state, record, status, Date.now() + ms, SECRETS)?.start;
    expect(orderIn(0)?.parameterServers).toHaveLength(1);
    expect(orderIn(0)?.readyServers).toEqual(["p:1", "q:1", "r:1"]);
    expect(orderIn(0)?.lostServers).toEqual(["s:1"]);
    expect(orderIn(600_000)?.lostServers).toEqual([]);
    await api.call("DELETE", `/jobs/${id}`);
    await api.report(id, "exited", { endedAtMs: 1 });
  });

  it("shows its configuration and readings in its status and in /metrics", async () => {
    const id = await api.submit({ ...training("ppo"), name: "told", command: undefined });
    await api.run(id);
    const progress = {
      atMs: Date.now(),
      step: 512,
      totalSteps: 1024,
      loss: 0.5,
      reward: 21.5,
      backend: "onnx",
      device: "cpu",
      bytesPushed: 4096,
      metrics: { entropy: 0.69 },
    };
    await api.propose({ type: "jobs.progress", entries: [{ jobId: id, attempt: 1, progress }] });
    const { body } = await api.call("GET", `/jobs/${id}`);
    expect(body).toMatchObject({
      training: { backend: "onnx", device: "cpu", bytes_pushed: 4096 },
      progress: { reward: 21.5, bytes_pushed: 4096, metrics: { entropy: 0.69 } },
    });
    const labels = `{job="${id}",name="told",algorithm="ppo"}`;
    const metrics = async () => (await send(api.master, "GET", "/metrics")).text();
    expect(await metrics()).toContain(`heddle_training_return${labels} 21.5`);
    expect(await metrics()).toContain(`heddle_training_bytes_pushed${labels} 4096`);
    await api.report(id, "exited", { endedAtMs: 1 });
    await api.reached(id, "succeeded");
    expect(await metrics()).not.toContain(id);
  });
});

describe("a job with a model to serve", () => {
  it("is refused if a model or a live job has its id", async () => {
    const taken = await api.call("POST", "/jobs", languageModel({ register_as: "FamilyA-1-2B" }));
    expect(taken.status).toBe(409);
    expect(taken.body?.errors).toMatchObject([{ pointer: "#/config/register_as" }]);
    expect(taken.body?.detail).toMatch(/No job has trained it/);
    const first = await api.submit({
      ...languageModel({ register_as: "mine" }),
      command: undefined,
    });
    const second = await api.call("POST", "/jobs", languageModel({ register_as: "mine" }));
    expect(second.status).toBe(409);
    expect(second.body?.detail).toContain(`job ${first} is to be registered as mine too`);
    const { body } = await api.call("GET", `/jobs/${first}`);
    expect(body).toMatchObject({ model: { id: "mine", state: "pending" } });
  });

  it("needs a key that may deploy models", async () => {
    const { text } = await api.master.addKey({ scopes: ["jobs:create"] });
    const body = languageModel({ register_as: "other" });
    const { status } = await api.call("POST", "/jobs", body, {}, text);
    expect(status).toBe(403);
    const without = await api.call("POST", "/jobs", languageModel(), {}, text);
    expect(without.status).toBe(202);
    const listed = await api.master.addKey({
      scopes: ["jobs:create", "models:deploy"],
      models: ["mine"],
    });
    const off = await api.call("POST", "/jobs", body, {}, listed.text);
    expect([off.status, off.body?.detail]).toEqual([403, expect.stringContaining("`other`")]);
  });
});
