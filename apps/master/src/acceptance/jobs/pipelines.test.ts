// holds: pipelines-end-to-end, pipelines-reuse, pipelines-checked

import { createHash, randomBytes } from "node:crypto";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { programOf } from "@heddle/base/testing/programs";
import { runProgram } from "@heddle/base/testing/run-program";
import { type S3Server, startS3Server } from "@heddle/base/testing/s3-server";
import type { PipelineView } from "@heddle/contracts/api/pipelines/operations";
import { S3Client } from "@heddle/storage/s3/s3-client";
import { readS3Settings } from "@heddle/storage/s3/s3-settings";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";
import { Runbook } from "../../../test/runbook.ts";

// Pipelines on a cluster of processes, by the command line.

const resources = { cpu_cores: 0.1, memory_gb: 0.5 };
const TEXT = "a heddle guides the warp, a shuttle carries the weft. ".repeat(64);

let cluster: ProcessCluster;
let store: S3Server;
const keys = mkdtempSync(join(tmpdir(), "heddle-pipelines-"));
beforeAll(async () => {
  store = await startS3Server();
  // The worker's key for the bucket.
  for (const [name, value] of Object.entries(store.env)) vi.stubEnv(name, value);
  const client = new S3Client(readS3Settings("s3://heddle/corpora", store.env, "a test"));
  await client.put("corpus.txt", TEXT.length, async () => Buffer.from(TEXT));
  const secretsKey = join(keys, "secrets-key");
  writeFileSync(secretsKey, randomBytes(32).toString("base64"), { mode: 0o600 });
  cluster = await ProcessCluster.start({
    workers: 1,
    masterFlags: ["--secrets-key-file", secretsKey],
    workerFlags: ["--weights-hosts", "s3://heddle/corpora"],
  });
  await cluster.startParameterServer("p");
});
afterAll(async () => {
  await cluster.close();
  await store.close();
  rmSync(keys, { recursive: true });
});

const access = () => ({
  HEDDLE_DATA: join(cluster.data, "none"),
  HEDDLE_ENDPOINT: cluster.url,
  HEDDLE_API_KEY: cluster.adminKey,
});
const heddle = (...args: string[]) => runProgram(programOf("cli"), args, access());

let files = 0;
function fileOf(pipeline: unknown): string {
  const file = join(cluster.data, `pipeline-${files++}.yaml`);
  writeFileSync(file, JSON.stringify(pipeline));
  return file;
}

async function run(pipeline: unknown): Promise<PipelineView> {
  const ended = await heddle("pipelines", "submit", fileOf(pipeline), "--wait", "-o", "json");
  expect(ended.code, ended.stderr + ended.stdout).toBe(0);
  return JSON.parse(ended.stdout) as PipelineView;
}

async function refusal(pipeline: unknown): Promise<string> {
  const ended = await heddle("pipelines", "graph", fileOf(pipeline));
  expect(ended.code, ended.stdout).toBe(2);
  return ended.stderr;
}

function statesOf({ jobs }: PipelineView): Record<string, string> {
  return Object.fromEntries(
    jobs.map(({ step, shard, state, reused, skipped }) => {
      const name = shard === null ? step : `${step}[${shard}]`;
      return [name, reused ? "reused" : skipped ? "skipped" : String(state)];
    }),
  );
}

/** Steps and their states in a printed table. */
function linesOf(table: string): string[] {
  const found = table.matchAll(/^(\S+) +\S+@\d+ +(\S+)/gm);
  return [...found].map(([, step, state]) => `${step} ${state}`);
}

const training = {
  program: "language_model",
  total_steps: 24,
  local_steps: 4,
  batch_size: 4,
  context_length: 64,
  hidden_size: 32,
  heads: 2,
  layers: 1,
  learning_rate: 0.01,
};

const CALLS = { calls: "file" };
const QUESTION = JSON.stringify({
  custom_id: "a",
  method: "POST",
  url: "/v1/chat/completions",
  body: { model: "weaver", max_tokens: 8, messages: [{ role: "user", content: "a heddle" }] },
});

function trainAndServe(atMost: number, learningRate = 0.01) {
  const digest = createHash("sha256").update(TEXT).digest("hex");
  return {
    name: "weaver",
    steps: {
      corpus: {
        block: "dataset",
        config: { source: "s3://heddle/corpora/corpus.txt", sha256: digest },
        resources,
      },
      train: {
        block: "train@1",
        config: { algorithm: "weave", config: { ...training, learning_rate: learningRate } },
        inputs: { data: "corpus.data" },
        resources: { cpu_cores: 0.5, memory_gb: 1 },
      },
      evaluate: { block: "evaluate", inputs: { metrics: "train.metrics" }, resources },
      register: {
        block: "register-model",
        config: { id: "weaver", replace: true, context_length: 64 },
        inputs: { model: "train.model", scores: "evaluate.scores" },
        when: [{ input: "scores", field: "loss", at_most: atMost }],
        resources,
      },
      questions: {
        block: "shell",
        config: { command: `echo '${QUESTION}' > "$HEDDLE_ARTIFACT_DIR/calls"`, outputs: CALLS },
        resources,
      },
      answers: {
        block: "batch-inference",
        config: { endpoint: cluster.url, model: "weaver" },
        inputs: { requests: "questions.calls", model: "register.model" },
        secret_variables: { API_KEY: "batch-key" },
        resources,
      },
    },
  };
}

test("the guide: its commands train, evaluate, register and chat; a changed step runs", async () => {
  const folder = join(cluster.data, "page");
  mkdirSync(folder);
  cpSync(new URL("../../../../../examples", import.meta.url), join(folder, "examples"), {
    recursive: true,
  });
  const page = new Runbook("guide/pipelines", folder, access());
  const planned = await page.run();
  expect(planned.output).toMatch(/^batch-inference@1 +requests/m);
  expect(planned.output).toMatch(/^register +register-model@1 .* train,evaluate/m);
  const { output } = await page.run();
  expect(linesOf(output)).toEqual(["train succeeded", "evaluate succeeded", "register succeeded"]);
  expect(output).toMatch(/^pipeline-lm is pulled$/m);
  expect(output).toMatch(/^\d+ tokens in /m);
  const again = await page.run();
  expect(linesOf(again.output)).toEqual(["train reused", "evaluate reused", "register succeeded"]);
  page.end();
});

test("train, evaluate, register and chat: each step has the outputs of those before", async () => {
  const secret = await cluster.request("PUT", "/api/v1/secrets/batch-key", {
    value: cluster.adminKey,
  });
  expect(secret.ok).toBe(true);
  const first = await run(trainAndServe(100));
  expect(new Set(Object.values(statesOf(first)))).toEqual(new Set(["succeeded"]));
  const batch = first.jobs.find(({ step }) => step === "answers")?.job;
  const answers = await cluster.request("GET", `/api/v1/jobs/${batch}/artifacts/answers`);
  expect(JSON.parse(await answers.text())).toMatchObject({
    custom_id: "a",
    response: { status_code: 200, body: { model: "weaver" } },
  });
  const answer = await cluster.openai.chat.completions.create({
    model: "weaver",
    max_tokens: 8,
    temperature: 0,
    messages: [{ role: "user", content: "a heddle" }],
  });
  expect(answer.usage?.completion_tokens).toBeGreaterThan(0);

  // Of a changed step, it and those after it run again; a bad score keeps the model from being replaced.
  const second = await run(trainAndServe(0.001, 0.02));
  expect(statesOf(second)).toEqual({
    corpus: "reused",
    train: "succeeded",
    evaluate: "succeeded",
    register: "skipped",
    questions: "reused",
    answers: "skipped",
  });
  expect(second.jobs[0]?.job).toBe(first.jobs[0]?.job);
  expect(second.jobs.find(({ step }) => step === "register")?.message).toMatch(
    /^skipped: loss of scores is \d.*, above 0\.001$/,
  );
});

/** A step on a new worker has the outputs that are on the disk of the first one. */
async function readsFromAnother(pipeline: {
  readonly steps: Readonly<Record<string, object>>;
}): Promise<void> {
  const ids = async () => {
    const { data } = (await (await cluster.request("GET", "/api/v1/workers")).json()) as {
      readonly data: readonly { readonly id: string; readonly kind: string }[];
    };
    return data.filter(({ kind }) => kind === "worker").map(({ id }) => id);
  };
  const [first = ""] = await ids();
  const worker = await cluster.startWorker();
  await eventually(async () => (await ids()).length === 2, "both workers are there");
  expect((await heddle("workers", "drain", first)).code).toBe(0);
  const gather = { ...pipeline.steps["gather"], config: { command: "cat inputs/*" } };
  const ran = await run({ ...pipeline, steps: { ...pipeline.steps, gather }, reuse: true });
  expect(statesOf(ran)).toMatchObject({ "work[en]": "reused", gather: "succeeded" });
  expect((await heddle("workers", "resume", first)).code).toBe(0);
  worker.kill();
}

/** A changed step reads those of a reused job, which its worker no longer has. */
async function losesArtifacts(
  pipeline: { readonly steps: Readonly<Record<string, object>> },
  { jobs }: PipelineView,
): Promise<void> {
  const job = jobs.find(({ step, shard }) => step === "work" && shard === "en")?.job;
  rmSync(join(cluster.data, "worker-1/artifacts", String(job)), { recursive: true });
  const gather = { ...pipeline.steps["gather"], config: { command: "cat inputs/part.1" } };
  const changed = { ...pipeline, steps: { ...pipeline.steps, gather }, reuse: true };
  const ended = await heddle("pipelines", "submit", fileOf(changed), "--wait", "-o", "json");
  expect(ended.code).toBe(8);
  const failed = (JSON.parse(ended.stdout) as PipelineView).jobs.at(-1);
  expect(failed).toMatchObject({ step: "gather", state: "failed" });
  expect(failed?.message).toContain(`artifact://${job}/1/0/out`);
  expect(failed?.message).toContain("Submit the pipeline with `reuse: false`");
}

test("shards: each runs once, and a step without shards gathers them", async () => {
  const shard =
    'cat inputs/in > "$HEDDLE_ARTIFACT_DIR/out"; echo "$PIPELINE_SHARD_NAME" >> "$HEDDLE_ARTIFACT_DIR/out"';
  const pipeline = {
    name: "fan",
    steps: {
      split: {
        block: "shell",
        config: { command: 'echo x > "$HEDDLE_ARTIFACT_DIR/in"', outputs: { in: "file" } },
        resources,
      },
      work: {
        block: "shell",
        config: { command: shard, outputs: { out: "file" } },
        inputs: { in: "split.in" },
        shards: ["en", "de"],
        resources,
      },
      gather: {
        block: "shell",
        config: { command: "cat inputs/part.0 inputs/part.1" },
        inputs: { part: "work.out" },
        resources,
      },
    },
  };
  const ran = await run(pipeline);
  expect(Object.keys(statesOf(ran))).toEqual(["split", "work[en]", "work[de]", "gather"]);
  const last = ran.jobs.at(-1)?.job;
  const log = await cluster.request("GET", `/api/v1/jobs/${last}/logs?stream=stdout&follow=true`);
  expect(await log.text()).toBe("x\nen\nx\nde\n");
  const dot = await heddle("pipelines", "graph", ran.id, "--dot");
  expect(dot.stdout).toContain('"work" -> "gather";');
  const again = await run({ ...pipeline, reuse: true });
  expect(new Set(Object.values(statesOf(again)))).toEqual(new Set(["reused"]));
  await readsFromAnother(pipeline);
  await losesArtifacts(pipeline, again);
  expect(Object.values(statesOf(await run({ ...pipeline, reuse: false })))).not.toContain("reused");
});

test("a failed step: fails the pipeline; a retry is a retry of its job", async () => {
  const steps = {
    bad: { block: "shell", config: { command: "exit 3" }, retry_limit: 1, resources },
    next: { block: "shell", config: { command: "true" }, after: ["bad"], resources },
  };
  const ended = await heddle(
    "pipelines",
    "submit",
    fileOf({ name: "bad", steps }),
    "--wait",
    "-o",
    "json",
  );
  expect(ended.code).toBe(8);
  const pipeline = JSON.parse(ended.stdout) as PipelineView;
  expect(statesOf(pipeline)).toEqual({ bad: "failed", next: "failed" });
  const { failures } = (await (
    await cluster.request("GET", `/api/v1/jobs/${pipeline.jobs[0]?.job}`)
  ).json()) as { failures: number };
  expect(failures).toBe(2);
});

test("cancel: ends the jobs of its steps; list and get show it", async () => {
  const steps = {
    long: { block: "shell", config: { command: "sleep 600" }, resources },
    next: { block: "shell", config: { command: "true" }, after: ["long"], resources },
  };
  const submitted = await heddle("pipelines", "submit", fileOf({ name: "long", steps }));
  const id = submitted.stdout.trim();
  expect((await heddle("pipelines", "cancel", id)).code).toBe(0);
  const isEnded = async () => {
    const { stdout } = await heddle("pipelines", "get", id, "-o", "json");
    return Object.values(statesOf(JSON.parse(stdout) as PipelineView)).every(
      (state) => state === "cancelled",
    );
  };
  await cluster.until(isEnded, "all its jobs are cancelled");
  const listed = await heddle("pipelines", "list", "--name", "long");
  expect(listed.stdout).toMatch(new RegExp(`^${id} +long +cancelled`, "m"));
  expect((await heddle("pipelines", "get", "job_01M7ZHA0THCABZQ4XCV62DZD3F")).code).toBe(3);
});

test("faults: all of them are named at once, and nothing is submitted", async () => {
  const said = await refusal({
    name: "faulty",
    steps: {
      a: { block: "shel", config: {} },
      b: { block: "evaluate", inputs: { metric: "c.model" } },
      c: { block: "train", config: { algorithm: "weave", confg: {} }, inputs: { data: "d.model" } },
      d: { block: "register-model", config: { id: "x" }, inputs: { model: "none.model" } },
    },
  });
  expect(said).toContain("there is no block shel");
  expect(said).toContain("the block evaluate@1 needs the input metrics");
  expect(said).toContain("There is no field 'steps.c.config.confg'. Did you mean 'config'?");
  expect(said).toContain("there is no step none");
});

test("faults: types of edges, cycles, and faults of a step's job", async () => {
  const model = { block: "register-model", config: { id: "x" } };
  const shell = { block: "shell", config: { command: "true", outputs: { out: "scores" } } };
  const wrongType = { a: shell, b: { ...model, inputs: { model: "a.out" } } };
  expect(await refusal({ name: "t", steps: wrongType })).toContain(
    "expected a model, and a.out is a scores",
  );
  const cycle = { a: { ...shell, after: ["b"] }, b: { ...shell, after: ["a"] } };
  expect(await refusal({ name: "t", steps: cycle })).toContain(
    "the steps form a cycle: a -> b -> a",
  );
  const train = { block: "train", config: { algorithm: "weave", config: { total_steps: -1 } } };
  expect(await refusal({ name: "t", steps: { train } })).toMatch(/The step train: .*total_steps/);
});
