import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ProcessCluster } from "../../test/process-cluster.ts";

// The whole way of training jobs, over HTTP: a master, workers and parameter servers as processes.

vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 });

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({
    workers: 1,
    masterFlags: ["--node-lost-ms", "6000"],
  });
  await cluster.startParameterServer("p");
});
afterAll(() => cluster.close());

interface Job {
  readonly state: string;
  readonly attempt: number;
  readonly failures: number;
  readonly losses: number;
  readonly failure: { readonly reason: string; readonly message: string } | null;
  readonly progress: {
    readonly step: number | null;
    readonly loss: number | null;
    readonly reward: number | null;
  } | null;
  readonly checkpoint: {
    readonly name: string;
    readonly attempt: number;
    readonly step: number | null;
  } | null;
  readonly training: {
    readonly backend: string | null;
    readonly device: string | null;
    readonly shards: readonly { readonly name: string; readonly state: string }[];
  };
  readonly model: { readonly state: string; readonly message: string | null } | null;
}

const resources = { cpu_cores: 0.5, memory_gb: 1 };

async function submit(body: Record<string, unknown>): Promise<string> {
  const reply = await cluster.request("POST", "/api/v1/jobs", { resources, ...body });
  if (reply.status !== 202) throw new Error(`${reply.status}: ${await reply.text()}`);
  return ((await reply.json()) as { job_id: string }).job_id;
}

async function jobOf(id: string): Promise<Job> {
  return (await (await cluster.request("GET", `/api/v1/jobs/${id}`)).json()) as Job;
}

/** Waits until the job is as it should be; one that fails says why. */
async function until(id: string, what: string, holds: (job: Job) => boolean): Promise<Job> {
  let job = await jobOf(id);
  const look = async () => {
    job = await jobOf(id);
    if (job.state === "failed")
      throw new Error(`${await logsOf(id)}${JSON.stringify(job.failure)}`);
    return holds(job);
  };
  await cluster.until(look, what, 120_000);
  return job;
}

async function logsOf(id: string): Promise<string> {
  return (await cluster.request("GET", `/api/v1/jobs/${id}/logs?attempt=all`)).text();
}

interface Artifact {
  readonly name: string;
  readonly sha256: string;
}

async function artifactsOf(id: string): Promise<readonly Artifact[]> {
  const reply = await cluster.request("GET", `/api/v1/jobs/${id}/artifacts`);
  return ((await reply.json()) as { data: readonly Artifact[] }).data;
}

async function download(id: string, name: string): Promise<Buffer> {
  const path = `/api/v1/jobs/${id}/artifacts/${encodeURIComponent(name)}`;
  return Buffer.from(await (await cluster.request("GET", path)).arrayBuffer());
}

test("ppo on CartPole is submitted, runs on a parameter server and leaves its policy", async () => {
  const id = await submit({
    ...{ name: "cartpole", algorithm: "ppo" },
    config: { total_timesteps: 4_096, num_envs: 4, num_steps: 64 },
  });
  const job = await until(id, "it has succeeded", ({ state }) => state === "succeeded");
  expect(job).toMatchObject({
    training: { backend: "onnx", device: "cpu", shards: [{ shard: 0, name: "p", state: "ready" }] },
    progress: { progress: 1, step: 4_096, total_steps: 4_096, bytes_pushed: expect.any(Number) },
  });
  expect(job.progress?.reward).toBeGreaterThan(9);
  const artifacts = await artifactsOf(id);
  const names = artifacts.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(["lineage.json", "metrics.jsonl"]));
  for (const { name, sha256 } of artifacts) {
    const digest = createHash("sha256")
      .update(await download(id, name))
      .digest("hex");
    expect(`${name} ${digest}`).toBe(`${name} ${sha256}`);
  }
  const lineage = JSON.parse((await download(id, "lineage.json")).toString());
  expect(lineage).toMatchObject({ job_id: id, algorithm: "ppo", step: 4_096 });
});

test("a language model is trained from text, registered with its lineage, and answers", async () => {
  const data = join(cluster.data, "corpus.txt");
  writeFileSync(data, "a heddle guides the warp, a shuttle carries the weft. ".repeat(64));
  const id = await submit({
    ...{ name: "tiny-lm", algorithm: "weave", tasks: 2 },
    config: {
      ...{ program: "language_model", data, total_steps: 24, local_steps: 4, batch_size: 4 },
      ...{ context_length: 64, hidden_size: 32, heads: 2, layers: 1, learning_rate: 0.01 },
      register_as: "tiny-weaver",
    },
  });
  const isRegistered = ({ model }: Job) => model?.state !== "pending";
  const job = await until(id, "its model is registered", isRegistered);
  expect(job.model).toMatchObject({ state: "registered" });
  let model: Record<string, unknown> = {};
  const isReady = async () => {
    model = (await (
      await cluster.request("GET", "/api/v1/models/tiny-weaver")
    ).json()) as typeof model;
    return model["status"] === "ready";
  };
  await cluster.until(isReady, "the model is ready", 60_000);
  const digest = (await artifactsOf(id)).find(({ name }) => name === "model.gguf")?.sha256;
  expect(model).toMatchObject({
    context_window: 64,
    lineage: { job_id: id, algorithm: "weave", sha256: digest, data_sha256: expect.any(String) },
  });
  const answer = await cluster.openai.chat.completions.create({
    ...{ model: "tiny-weaver", max_tokens: 8, temperature: 0 },
    messages: [{ role: "user", content: "a heddle" }],
  });
  expect(answer.usage?.completion_tokens).toBeGreaterThan(0);
});

/** A job that goes on for longer than any test, and checkpoints every second. */
const long = {
  algorithm: "ppo",
  config: { total_timesteps: 50_000_000, num_envs: 4, num_steps: 64 },
  checkpoint_config: { interval_seconds: 1, grace_seconds: 30 },
};
const hasCheckpoint = ({ checkpoint }: Job) => checkpoint !== null && checkpoint.name !== "";

/** Waits until an attempt of the job tells a step beyond that of the checkpoint it was given. */
async function goesOn(id: string, attempt: number, checkpoint: Job["checkpoint"]): Promise<Job> {
  const job = await until(
    id,
    `attempt ${attempt} goes on`,
    (now) =>
      now.attempt === attempt &&
      now.checkpoint?.attempt === attempt &&
      (now.checkpoint.step ?? 0) > (checkpoint?.step ?? 0),
  );
  const logs = await cluster.request("GET", `/api/v1/jobs/${id}/logs?attempt=${attempt}`);
  expect(await logs.text()).toMatch(/resumed from checkpoint \S/);
  return job;
}

async function cancel(id: string): Promise<void> {
  await cluster.request("DELETE", `/api/v1/jobs/${id}`);
  await until(id, "it is cancelled", ({ state }) => state === "cancelled");
}

test("suspended, a job checkpoints; resumed, its next attempt goes on from there", async () => {
  const id = await submit({ name: "suspended", ...long });
  await until(id, "it runs", ({ state, progress }) => state === "running" && progress !== null);
  await cluster.request("POST", `/api/v1/jobs/${id}/suspend`);
  const { checkpoint } = await until(id, "it is suspended", ({ state }) => state === "suspended");
  expect(checkpoint).toMatchObject({ attempt: 1, name: expect.stringMatching(/./) });
  await cluster.request("POST", `/api/v1/jobs/${id}/resume`);
  expect(await goesOn(id, 2, checkpoint)).toMatchObject({ failures: 0, losses: 0 });
  await cancel(id);
});

test("a parameter server that is killed is replaced: no retry charged, on from the checkpoint", async () => {
  const lost = await cluster.startParameterServer("q");
  await cluster.until(async () => (await shardsHeld("q")) === 0, "q takes shards", 30_000);
  const { config } = long;
  const id = await submit({
    ...{ name: "lost-server", ...long, config: { ...config, parameter_servers: 2 } },
  });
  const { training, checkpoint } = await until(id, "it has a checkpoint", hasCheckpoint);
  expect(training.shards.map(({ name }) => name).sort()).toEqual(["p", "q"]);
  expect(await shardsHeld("q")).toBe(1);
  await cluster.stop(lost, "SIGKILL");
  const again = await goesOn(id, 2, checkpoint);
  expect(again).toMatchObject({ losses: 1, failures: 0 });
  expect(again.training.shards.map(({ name }) => name)).toEqual(["p", "p"]);
  expect(again.failure).toMatchObject({
    reason: "NodeLost",
    message: expect.stringMatching(/^the parameter server q is lost, which held shard \d$/),
  });
  await cancel(id);
});

/** Shards on the parameter server of that name; undefined while the cluster gives it none. */
async function shardsHeld(name: string): Promise<number | undefined> {
  const { data } = (await (await cluster.request("GET", "/api/v1/workers")).json()) as {
    data: readonly { name: string; shards: { held: number } | null }[];
  };
  return data.find((each) => each.name === name)?.shards?.held;
}
