// holds: shard-gpus

import { execFile } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { eventually } from "@heddle/base/testing/eventually";
import { programOf } from "@heddle/base/testing/programs";
import type { Model } from "@heddle/contracts/api/models";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// Stages on workers with declared GPUs, whose engines run on the CPU.

const ON_GPU = "gpu 0: H100 (simulated, on the CPU)";
const WORKERS = ["one", "two", "three"];

let cluster: ProcessCluster;
const workers = new Map<string, Awaited<ReturnType<ProcessCluster["startWorker"]>>>();
async function start(name: string): Promise<void> {
  const gpus = name === "three" ? [] : ["--simulate-gpus", "1xH100-80GB"];
  workers.set(name, await cluster.startWorker([...gpus, "--name", name], name));
}
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 0, isBare: true });
  for (const name of WORKERS) await start(name);
});
afterAll(() => cluster?.close());

const nodeOf = (name: string) => readFileSync(join(cluster.data, name, "node-id"), "utf8").trim();
const model = async (id: string) =>
  (await (await cluster.request("GET", `/api/v1/models/${id}`)).json()) as Model;
const ready = (id: string) =>
  cluster.until(async () => (await model(id)).status === "ready", `${id} is ready`);
const stagesOf = async (id: string) => (await model(id)).replicas[0]?.stages ?? [];
/** The names of the workers whose GPU is in use. */
const inUse = async () => {
  const reply = await cluster.request("GET", "/api/v1/cluster/resources");
  const { nodes } = (await reply.json()) as {
    nodes: { name: string; gpus: { in_use: number }[] }[];
  };
  return nodes.filter(({ gpus }) => gpus.some((pool) => pool.in_use === 1)).map(({ name }) => name);
};

/** Registers a model that workers divide, with a GPU for each stage. */
async function divide(id: string): Promise<void> {
  const file = join(cluster.data, "six.gguf");
  await writeTinyModel(file, { blocks: 6 });
  const sources = [`file://${file}`];
  const registered = await cluster.request("POST", "/api/v1/models", {
    id,
    weights: { file: "six.gguf", sources, size_bytes: statSync(file).size },
    options: { context_tokens: 512, kv_tokens: 1_024, max_sequences: 2, threads: 1 },
    placement: "sharded",
    resources: { gpu_count: 1, gpu_type: "H100" },
  });
  expect(await registered.text()).toContain('"object":"model"');
}

/** Submits a job with a GPU, which none of a higher rank takes from it. */
const submit = (name: string, command: string) => {
  const resources = { cpu_cores: 0.1, memory_gb: 0.1, gpu_count: 1, preemptible: false };
  return cluster.submit({ name, command, resources });
};
const stateOf = async (id: string) => {
  const reply = await cluster.request("GET", `/api/v1/jobs/${id}`);
  return ((await reply.json()) as { state: string }).state;
};

it("a model is divided over the GPUs of two workers, which nothing else gets", async () => {
  await divide("divided");
  await ready("divided");
  const stages = await stagesOf("divided");
  expect(stages).toMatchObject([
    { first_block: 0, device: ON_GPU, phase: "ready" },
    { last_block: 5, device: ON_GPU, phase: "ready" },
  ]);
  for (const { planned_bytes: planned } of stages) expect(planned).toBeGreaterThan(0);
  expect(stages.map(({ node }) => node).sort()).toEqual(["one", "two"].map(nodeOf).sort());
  expect((await inUse()).sort()).toEqual(["one", "two"]);
  const { choices } = await cluster.openai.chat.completions.create({
    model: "divided",
    messages: [{ role: "user", content: "Hello" }],
    max_tokens: 4,
  });
  expect(choices[0]?.message.content).toBeDefined();
  const env = {
    ...process.env,
    HEDDLE_ENDPOINT: cluster.url,
    HEDDLE_API_KEY: cluster.adminKey,
  };
  const list = [programOf("cli"), "models", "list", "-o", "wide"];
  const { stdout } = await promisify(execFile)(process.execPath, list, { env });
  expect(stdout).toMatch(/\d-5 gpu 0: H100 \(simulated, on the CPU\) \d+ MiB/);
  const whole = { id: "whole", source: "builtin://tiny?seed=9", resources: { gpu_count: 1 } };
  await cluster.request("POST", "/api/v1/models", whole);
  await eventually(async () => (await model("whole")).waiting_for.length > 0);
});

it("the last stage's worker has its GPU again after a restart, although jobs wait", async () => {
  await cluster.request("DELETE", "/api/v1/models/whole");
  const jobs = await Promise.all(["a", "b"].map((name) => submit(name, "true")));
  const last = (await stagesOf("divided")).at(-1);
  const name = WORKERS.find((each) => nodeOf(each) === last?.node) ?? "";
  await cluster.stop(workers.get(name)!, "SIGKILL");
  await cluster.until(async () => (await model("divided")).status !== "ready", "the stage is lost");
  // Long enough for the jobs to get what would be free.
  await delay(2_000);
  await start(name);
  await ready("divided");
  expect((await inUse()).sort()).toEqual(["one", "two"]);
  for (const id of jobs) {
    expect(await stateOf(id)).toBe("pending");
    await cluster.request("DELETE", `/api/v1/jobs/${id}`);
  }
});

it("another worker with a GPU takes the stage of one that is drained", async () => {
  await start("four");
  const [first] = await stagesOf("divided");
  await cluster.request("POST", `/api/v1/workers/${first!.node}/drain`, {});
  await cluster.until(async () => {
    const [moved] = await stagesOf("divided");
    return moved?.node === nodeOf("four") && moved.phase === "ready";
  }, "the stage has moved");
  expect(await stagesOf("divided")).toMatchObject([{ device: ON_GPU }, { device: ON_GPU }]);
  await cluster.until(async () => {
    const used = await inUse();
    return used.length === 2 && used.includes("four");
  }, "the GPU that it has left is free");
  await ready("divided");
});

it("a model that is removed frees the GPUs of all its stages", async () => {
  await cluster.request("DELETE", "/api/v1/models/divided");
  await cluster.until(async () => (await inUse()).length === 0, "no GPU is in use");
});

it("a divided model queues for GPUs: jobs that come later wait for it", async () => {
  const first = await Promise.all(["c", "d"].map((name) => submit(name, "sleep 600")));
  for (const id of first) {
    await cluster.until(async () => (await stateOf(id)) === "running", "the job runs");
  }
  await divide("queued");
  await eventually(async () => (await model("queued")).waiting_for.length > 0);
  expect((await model("queued")).waiting_for).toEqual([
    expect.stringMatching(
      /^InsufficientGpu: 2 stages x 1 GPU \(H100\) with \d+ MiB, each on another worker; free now: 0 of 1 on \w+ \(job .+\), 0 of 1 on \w+ \(job .+\); it starts when 1 more GPU of \w+ and 1 more GPU of \w+ are free, or 2 more such workers join$/,
    ),
  ]);
  const later = await Promise.all([submit("e", "true"), submit("f", "true")]);
  for (const id of first) {
    await cluster.request("DELETE", `/api/v1/jobs/${id}`);
    await cluster.until(async () => (await stateOf(id)) === "cancelled", "the job has left");
  }
  await ready("queued");
  expect(await Promise.all(later.map(stateOf))).toEqual(["pending", "pending"]);
  await cluster.request("DELETE", "/api/v1/models/queued");
  for (const id of later) {
    await cluster.until(async () => (await stateOf(id)) === "succeeded", "the job has run");
  }
});
