// holds: train-http

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { toAppError } from "@heddle/base/errors";
import { programOf } from "@heddle/base/testing/programs";
import type { ShardId, ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type {
  ShardStatus,
  ShardStatus__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import { Peer } from "@heddle/rpc/peer";
import { method, parameterShardsService } from "@heddle/rpc/proto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { descendantsOf, ProcessCluster } from "../../../test/process-cluster.ts";

// The whole path of training jobs over HTTP: a master, workers and parameter servers as processes.

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({
    workers: 1,
    // A server that restarts must be back before.
    masterFlags: ["--node-lost-ms", "40000"],
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
    readonly shards: readonly {
      readonly name: string;
      readonly address: string;
      readonly state: string;
    }[];
  };
  readonly model: { readonly state: string; readonly message: string | null } | null;
}

const CLI = programOf("cli");

/** Runs the command line as a process to its end. */
async function heddle(args: readonly string[]) {
  const child = spawn(process.execPath, [CLI, ...args], {
    env: {
      PATH: process.env["PATH"],
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
      HEDDLE_DATA: join(cluster.data, "none"),
      HEDDLE_ENDPOINT: cluster.url,
      HEDDLE_API_KEY: cluster.adminKey,
    },
  });
  child.stdin.end();
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close"),
  ]);
  return { code: code as number | null, stdout, stderr };
}

const resources = { cpu_cores: 0.5, memory_gb: 1 };

function submit(body: Record<string, unknown>): Promise<string> {
  return cluster.submit({ resources, ...body });
}

const until = (id: string, what: string, holds: (job: Job) => boolean) =>
  cluster.untilJob(id, what, holds);
const logsOf = (id: string) => cluster.logsOf(id);

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

test("ppo on CartPole: runs on a parameter server and leaves its policy", async () => {
  const id = await submit({
    name: "cartpole",
    algorithm: "ppo",
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

test("language model: trained from text, registered with lineage, and answers", async () => {
  const corpus = join(cluster.data, "corpus.txt");
  writeFileSync(corpus, "a heddle guides the warp, a shuttle carries the weft. ".repeat(64));
  const config = {
    program: "language_model",
    total_steps: 24,
    local_steps: 4,
    batch_size: 4,
    context_length: 64,
    hidden_size: 32,
    heads: 2,
    layers: 1,
    learning_rate: 0.01,
    // Relative to the spec's file.
    data: "corpus.txt",
    register_as: "tiny-weaver",
    tokenizer: "bpe",
  };
  const spec = join(cluster.data, "tiny-lm.yaml");
  const body = { name: "tiny-lm", algorithm: "weave", tasks: 2, resources, config };
  writeFileSync(spec, JSON.stringify(body));
  const run = await heddle(["jobs", "submit", spec, "--watch"]);
  expect(run.code, run.stderr + run.stdout).toBe(0);
  const id = run.stdout.split("\n")[0] ?? "";
  expect(run.stdout).toMatch(/\nprogress .*loss \d.* on onnx \(cpu\)/);
  expect(run.stdout.trim()).toMatch(/SUCCEEDED$/);
  expect(run.stderr).toContain(`model.gguf, tokenizer.json; download: heddle jobs artifacts ${id}`);
  expect(run.stderr).toContain(
    "the model tiny-weaver is registered: heddle chat --model tiny-weaver",
  );
  let model: Record<string, unknown> = {};
  const isReady = async () => {
    model = (await (
      await cluster.request("GET", "/api/v1/models/tiny-weaver")
    ).json()) as typeof model;
    return model["status"] === "ready";
  };
  await cluster.until(isReady, "the model is ready");
  const digest = (await artifactsOf(id)).find(({ name }) => name === "model.gguf")?.sha256;
  expect(model).toMatchObject({
    context_window: 64,
    lineage: { job_id: id, algorithm: "weave", sha256: digest, data_sha256: expect.any(String) },
  });
  const file = join(cluster.data, "downloaded.gguf");
  const downloaded = await heddle(["jobs", "artifacts", id, "model.gguf", "-O", file]);
  expect(downloaded).toEqual({ code: 0, stdout: `${file}\n`, stderr: "" });
  expect(createHash("sha256").update(readFileSync(file)).digest("hex")).toBe(digest);
  const listed = await heddle(["jobs", "artifacts", id]);
  expect(listed.stdout).toMatch(/\ntokenizer\.json +\d+ +0\n/);
  expect(listed.stdout).toMatch(/^NAME +BYTES +RANK\n(.*\n)*model\.gguf +\d+ +0\n/);
  expect((await heddle(["jobs", "artifacts", id, "none"])).code).toBe(3);
  expect((await heddle(["models", "list", "-o", "wide"])).stdout).toContain(`${id}, step 24, data`);
  expect((await heddle(["jobs", "get", id])).stdout).toMatch(
    /\nshards +0 on p\nmodel +tiny-weaver is registered\n/,
  );
  const answer = await cluster.openai.chat.completions.create({
    model: "tiny-weaver",
    max_tokens: 8,
    temperature: 0,
    messages: [{ role: "user", content: "a heddle" }],
  });
  expect(answer.usage?.completion_tokens).toBeGreaterThan(0);
});

/** A job that runs longer than any test, with a checkpoint every second. */
const long = {
  algorithm: "ppo",
  config: { total_timesteps: 50_000_000, num_envs: 4, num_steps: 64 },
  checkpoint_config: { interval_seconds: 1, grace_seconds: 30 },
};
const hasCheckpoint = ({ checkpoint }: Job) => checkpoint !== null && checkpoint.name !== "";

/**
 * Waits until a later attempt reports a durable checkpoint beyond its initial one. On a loaded
 * machine a slow server may count as lost, which makes another attempt.
 */
async function goesOn(id: string, { attempt, checkpoint }: Job): Promise<Job> {
  const job = await until(
    id,
    `an attempt after ${attempt} continues`,
    (now) =>
      now.attempt > attempt &&
      now.checkpoint?.attempt === now.attempt &&
      (now.checkpoint.step ?? 0) > (checkpoint?.step ?? 0),
  );
  const logs = await cluster.request("GET", `/api/v1/jobs/${id}/logs?attempt=${job.attempt}`);
  expect(await logs.text()).toMatch(/resumed from checkpoint \S/);
  return job;
}

/** The failures in the job's events. */
async function failuresOf(id: string): Promise<string[]> {
  const reply = await cluster.request("GET", `/api/v1/jobs/${id}/events`);
  const { data } = (await reply.json()) as {
    data: readonly { failure: { reason: string; message: string } | null }[];
  };
  return data.flatMap(({ failure }) => (failure ? [`${failure.reason}: ${failure.message}`] : []));
}

async function cancel(id: string): Promise<void> {
  await cluster.request("DELETE", `/api/v1/jobs/${id}`);
  await until(id, "it is cancelled", ({ state }) => state === "cancelled");
}

test.concurrent("cancelled job: its shards are freed on their server", async () => {
  const id = await submit({ name: "freed", ...long });
  const { training, attempt } = await until(id, "it runs", ({ state, progress }) => {
    return state === "running" && progress !== null;
  });
  const address = training.shards[0]?.address ?? "";
  expect(await shardFault(address, id, attempt)).toBeUndefined();
  await cancel(id);
  const isFreed = async () => (await shardFault(address, id, attempt)) !== undefined;
  await cluster.until(isFreed, "the server has no such shard");
});

/** The server's refusal to describe the job's first shard; undefined if it does. */
async function shardFault(
  address: string,
  jobId: string,
  attempt: number,
): Promise<string | undefined> {
  const clusterToken = readFileSync(join(cluster.data, "token"), "utf8").trim();
  const peer = new Peer(
    address,
    { clusterToken, node: { role: "worker", name: "w" } },
    "parameter-server",
  );
  try {
    await peer.unary(statusMethod, { jobId, attempt, shard: 0 }, { deadlineMs: 10_000 });
    return undefined;
  } catch (error) {
    return toAppError(error).code;
  } finally {
    peer.close();
  }
}

const statusMethod = method<ShardId, ShardId__Output, ShardStatus, ShardStatus__Output>(
  parameterShardsService,
  "Status",
);

// holds: ps-old-checkpoints
test.concurrent("checkpoints: deleted for an ended job, kept for a suspended one", async () => {
  const folderOf = (id: string) => join(cluster.data, "p", "checkpoints", id);
  const kept = await submit({ name: "kept", ...long });
  await until(kept, "it has a checkpoint", hasCheckpoint);
  await cluster.request("POST", `/api/v1/jobs/${kept}/suspend`);
  const suspended = await until(kept, "it is suspended", ({ state }) => state === "suspended");
  const ended = await submit({ name: "ended", ...long });
  await until(ended, "it has a checkpoint", hasCheckpoint);
  expect(existsSync(folderOf(ended))).toBe(true);
  await cancel(ended);
  const isDeleted = async () => !existsSync(folderOf(ended));
  await cluster.until(isDeleted, "the ended job's checkpoints are deleted");
  expect(readdirSync(folderOf(kept))).toContain(suspended.checkpoint?.name);
  await cluster.request("POST", `/api/v1/jobs/${kept}/resume`);
  expect(await goesOn(kept, suspended)).toMatchObject({ failures: 0 });
  await cancel(kept);
});

test.concurrent("suspend: checkpoints; resume: the next attempt continues from there", async () => {
  const id = await submit({ name: "suspended", ...long });
  await until(id, "it runs", ({ state, progress }) => state === "running" && progress !== null);
  await cluster.request("POST", `/api/v1/jobs/${id}/suspend`);
  const suspended = await until(id, "it is suspended", ({ state }) => state === "suspended");
  expect(suspended.checkpoint?.name).toMatch(/./);
  await cluster.request("POST", `/api/v1/jobs/${id}/resume`);
  expect(await goesOn(id, suspended)).toMatchObject({ failures: 0 });
  await cancel(id);
});

// holds: train-elastic
test("trainer kill within failure_tolerance: the attempt continues with a replacement", async () => {
  const file = join(cluster.data, "elastic.txt");
  writeFileSync(file, "the heddle guides the warp; the shuttle carries the weft. ".repeat(20));
  const shape = { program: "language_model", hidden_size: 16, layers: 1, heads: 2 };
  const steps = { context_length: 16, batch_size: 4, total_steps: 10_000_000, local_steps: 10 };
  const config = { ...shape, ...steps, data: file };
  const id = await submit({
    name: "elastic",
    algorithm: "weave",
    tasks: 2,
    failure_tolerance: 1,
    config,
  });
  const stepOf = ({ progress }: Job) => progress?.step ?? 0;
  const before = await until(id, "it runs", (job) => job.state === "running" && stepOf(job) > 0);
  const trainers = descendantsOf(cluster.workers[0]?.pid).filter((pid) =>
    readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("trainer/dist/main.js"),
  );
  expect(trainers).toHaveLength(2);
  process.kill(trainers[1] ?? 0, "SIGKILL");
  await until(id, "the loss is reported", ({ losses }) => losses === before.losses + 1);
  const back = await until(id, "it is whole again", ({ state }) => state === "running");
  const later = await until(id, "it continues", (job) => stepOf(job) > stepOf(back) + 100);
  expect(later).toMatchObject({ attempt: before.attempt, failures: 0, losses: 1 });
  expect(await logsOf(id)).toMatch(/takes the place of a lost task after round \d+/);
  await cancel(id);
});

test("parameter server kill: replaced without a retry, on from the checkpoint", async () => {
  const lost = await cluster.startParameterServer("q");
  await cluster.until(async () => (await shardsHeld("q")) === 0, "q takes shards");
  const { config } = long;
  const id = await submit({
    name: "lost-server",
    ...long,
    config: { ...config, parameter_servers: 2 },
  });
  const before = await until(id, "it has a checkpoint", hasCheckpoint);
  expect(before.training.shards.map(({ name }) => name).sort()).toEqual(["p", "q"]);
  expect(await shardsHeld("q")).toBe(1);
  await cluster.stop(lost, "SIGKILL");
  const again = await goesOn(id, before);
  expect(again).toMatchObject({ failures: 0 });
  expect(again.training.shards.map(({ name }) => name)).toEqual(["p", "p"]);
  expect((await failuresOf(id)).join("\n")).toMatch(
    /NodeLost: the parameter server q is lost, which held shard \d/,
  );
  await cancel(id);
});

test("parameter server restart: its shards are lost, without a retry", async () => {
  const first = await cluster.startParameterServer("r");
  await cluster.until(async () => (await shardsHeld("r")) === 0, "r takes shards");
  const { config } = long;
  const id = await submit({
    name: "restarted-server",
    ...long,
    config: { ...config, parameter_servers: 2 },
  });
  const before = await until(id, "it has a checkpoint", hasCheckpoint);
  expect(before.training.shards.map(({ name }) => name).sort()).toEqual(["p", "r"]);
  await cluster.stop(first, "SIGKILL");
  await cluster.startParameterServer("r");
  expect(await goesOn(id, before)).toMatchObject({ failures: 0 });
  expect((await failuresOf(id)).join("\n")).toMatch(/NodeLost: the parameter server r restarted/);
  await cancel(id);
});

/** Shards on the parameter server of that name; undefined while the cluster assigns none. */
async function shardsHeld(name: string): Promise<number | undefined> {
  const { data } = (await (await cluster.request("GET", "/api/v1/workers")).json()) as {
    data: readonly { name: string; shards: { held: number } | null }[];
  };
  return data.find((each) => each.name === name)?.shards?.held;
}
