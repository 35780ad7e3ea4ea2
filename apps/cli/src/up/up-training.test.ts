// holds: train-tls

import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// Training through a whole cluster of `heddle up --tls --plugins ...`, with the real programs.

const MAIN = programOf("cli");
const PLUGINS = ["grid-world", "evolution-strategies"].map((name) =>
  fileURLToPath(new URL(`../../../../examples/plugins/${name}.mjs`, import.meta.url)),
);
/** The time limit of a small job on a busy machine. */
const WAIT_MS = 200_000;
const scratch = mkdtempSync(join(tmpdir(), "heddle-up-training-"));
// Tasks have their own users, and read the training data from here.
chmodSync(scratch, 0o755);
const resources = { cpu_cores: 0.2, memory_gb: 0.5 };
let cluster: DrivenProcess;
let port = 0;

beforeAll(async () => {
  port = await freePort();
  const place = ["--data", join(scratch, "data"), "--port", String(port), "--profile", "tiny"];
  const nodes = ["--tls", "--workers", "2", "--parameter-servers", "1"];
  const flags = [...place, ...nodes, "--plugins", PLUGINS.join(",")];
  cluster = new DrivenProcess([process.execPath, MAIN, "up", ...flags], { HEDDLE_DRAIN_MS: "300" });
  await cluster.printed(/Ctrl-C stops everything/);
});
afterAll(async () => {
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

let command: DrivenProcess | undefined;
afterEach(() => {
  command?.child.kill("SIGKILL");
});

interface Job {
  readonly state: string;
  readonly failure: unknown;
  readonly progress: { readonly step: number; readonly data_path: string | null } | null;
}

async function call(method: string, path: string, body?: object): Promise<Response> {
  const key = readFileSync(join(scratch, "data", "bootstrap-key"), "utf8").trim();
  return fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
}

/** Submits a job and waits for its success; a failed job's reason is in the error. */
async function succeeds(body: object): Promise<string> {
  const reply = await call("POST", "/jobs", { resources, ...body });
  expect(reply.status, await reply.clone().text()).toBe(202);
  const { job_id: id } = (await reply.json()) as { job_id: string };
  const end = performance.now() + WAIT_MS;
  for (;;) {
    const job = (await (await call("GET", `/jobs/${id}`)).json()) as Job;
    if (job.state === "succeeded") return id;
    if (job.state === "failed" || performance.now() > end) {
      throw new Error(`${JSON.stringify(job)}\n${await logsOf(id)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function logsOf(id: string): Promise<string> {
  return (await call("GET", `/jobs/${id}/logs?attempt=all`)).text();
}

async function lineageOf(id: string): Promise<unknown> {
  return (await call("GET", `/jobs/${id}/artifacts/lineage.json`)).json();
}

test("training: under TLS two tasks train through a parameter server", async () => {
  const data = join(scratch, "line.csv");
  writeFileSync(data, "x,y\n1,2\n2,4\n3,6\n4,8\n");
  const config = { program: "regression", data, hidden: [4], total_steps: 64, local_steps: 4 };
  const id = await succeeds({ name: "line", algorithm: "weave", tasks: 2, config });
  expect(await lineageOf(id)).toMatchObject({ algorithm: "weave", step: 64 });
  await eventually(
    async () => /done at step 64/.test(await logsOf(id)),
    "the masters have its log",
  );
});

test("training: ppo runs in an environment of a plugin", async () => {
  const sizes = { total_timesteps: 1_024, num_envs: 4, num_steps: 64 };
  const config = { environment: "GridWorld-v0", ...sizes };
  const id = await succeeds({ name: "walk", algorithm: "ppo", config });
  expect(await lineageOf(id)).toMatchObject({ config: { environment: "GridWorld-v0" } });
});

test("training: an algorithm of a plugin runs as a job, with its defaults", async () => {
  const config = { environment: "CartPole-v1", generations: 2, directions: 2 };
  const id = await succeeds({ name: "evolve", algorithm: "evolution-strategies", config });
  expect(await lineageOf(id)).toMatchObject({ algorithm: "evolution-strategies" });
});

test("plugins: a missing file is reported before anything is started", async () => {
  const missing = join(scratch, "none.mjs");
  command = new DrivenProcess([process.execPath, MAIN, "up", "--plugins", missing]);
  expect(await command.end()).toBe(2);
  expect(command.stderr).toContain(`--plugins: there is no file ${missing}`);
});
