// holds: train-elastic

import type { ChildProcess } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { descendantsOf, ProcessCluster } from "../../../test/process-cluster.ts";

// A node is killed under training jobs that tolerate losses: real processes, over HTTP.

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({
    workers: 0,
    masterFlags: ["--node-lost-ms", "18000", "--lease-ms", "20000"],
  });
  await Promise.all([cluster.startParameterServer("p"), startNode("a", 1)]);
});
afterAll(() => cluster.close());

/** A worker with this many devices; resolves when it accepts jobs. */
async function startNode(name: string, devices: number, pool = name): Promise<ChildProcess> {
  const gpus = ["--simulate-gpus", `${devices}xH100-80GB`];
  const flags = ["--name", name, "--labels", `pool=${pool}`, ...gpus];
  const worker = await cluster.startWorker(flags, name);
  const isKnown = async () => {
    const reply = await cluster.request("GET", "/api/v1/workers");
    const { data } = (await reply.json()) as { data: { name: string; jobs: object | null }[] };
    return data.some((each) => each.name === name && each.jobs !== null);
  };
  await cluster.until(isKnown, `${name} takes jobs`);
  return worker;
}

interface Job {
  readonly state: string;
  readonly attempt: number;
  readonly failures: number;
  readonly losses: number;
  readonly failure: unknown;
  readonly progress: { readonly step: number | null } | null;
  readonly checkpoint: { readonly attempt: number } | null;
}

async function submit(name: string, more: object): Promise<string> {
  const data = join(cluster.data, "text.txt");
  writeFileSync(data, "the heddle guides the warp; the shuttle carries the weft. ".repeat(20));
  const shape = { program: "language_model", hidden_size: 16, layers: 1, heads: 2 };
  const steps = { context_length: 16, batch_size: 4, total_steps: 10_000_000, local_steps: 10 };
  return cluster.submit({
    name,
    algorithm: "weave",
    tasks: 2,
    failure_tolerance: 1,
    config: { ...shape, ...steps, data },
    checkpoint_config: { interval_seconds: 1 },
    resources: { cpu_cores: 0.2, memory_gb: 0.5, gpu_count: 2, ...more },
  });
}

const read = async (path: string) => (await cluster.request("GET", `/api/v1/jobs/${path}`)).text();
const until = (id: string, what: string, holds: (job: Job) => boolean) =>
  cluster.untilJob(id, what, holds);

const stepOf = ({ progress }: Job) => progress?.step ?? 0;

test("node kill: one lost task of two is replaced, two lost end the attempt", async () => {
  const lost = await startNode("b", 3, "spare");
  // Both of its tasks are on the node that is killed; of the other job only one.
  const beyond = await submit("beyond", { node_affinity: { pool: "spare" } });
  await until(beyond, "it has places", ({ state }) => state === "running");
  const within = await submit("within", {});
  const before = await until(within, "it runs", (job) => {
    return job.state === "running" && stepOf(job) > 0;
  });
  await until(beyond, "it has a checkpoint", ({ checkpoint }) => checkpoint !== null);
  const below = descendantsOf(lost.pid);
  await cluster.stop(lost, "SIGKILL");
  for (const pid of below) process.kill(pid, "SIGKILL");
  await startNode("c", 3, "spare");
  await until(within, "its loss is reported", ({ losses }) => losses === 1);
  const back = await until(within, "it is whole again", ({ state }) => state === "running");
  const later = await until(within, "it continues", (job) => stepOf(job) > stepOf(back) + 50);
  expect(later).toMatchObject({ attempt: before.attempt, failures: 0, losses: 1 });
  expect(await read(`${within}/logs?attempt=all`)).toMatch(/takes the place of a lost task after/);
  const next = await until(beyond, "its next attempt continues", ({ attempt, checkpoint }) => {
    return attempt === 2 && checkpoint?.attempt === 2;
  });
  expect(next).toMatchObject({ failures: 0, losses: 1 });
  expect(await read(`${beyond}/logs?attempt=2`)).toMatch(/resumed from checkpoint a1-/);
  expect(await read(`${beyond}/events`)).toMatch(/the node of rank 0 is lost/);
});
