// holds: train-http

import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// A user's own program trains: it leaves a model and its lineage.

const WRITER = fileURLToPath(
  new URL("../../../../../libs/engines/dist/gguf/tiny-model.js", import.meta.url),
);
const DATA_SHA256 = "ab".repeat(32);

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 0 });
  // Each with its own cache, as on separate machines.
  for (const name of ["a", "b"]) {
    await cluster.startWorker(["--models-cache", join(cluster.data, `cache-${name}`)]);
  }
  await cluster.replicasReady(2);
});
afterAll(() => cluster.close());

/** A job that leaves a model of random weights from the seed, and its lineage. */
function trainer(name: string, seed: number, config: Record<string, unknown>) {
  const lineage = { data: { sha256: DATA_SHA256 }, code_version: "7", step: 9, loss: 1.5 };
  const script = `
    import { writeFileSync } from "node:fs";
    const { writeTinyModel } = await import(${JSON.stringify(WRITER)});
    const at = process.env.HEDDLE_ARTIFACT_DIR;
    await writeTinyModel(at + "/model.gguf", { seed: ${seed}, contextTokens: 512 });
    writeFileSync(at + "/lineage.json", ${JSON.stringify(JSON.stringify(lineage))});`;
  const command = [process.execPath, "--input-type=module", "--eval", script];
  const resources = { cpu_cores: 0.1, memory_gb: 1 };
  return { name, algorithm: "own", command, config: { context_length: 512, ...config }, resources };
}

interface Job {
  readonly state: string;
  readonly failure: unknown;
  readonly model: { readonly id: string; readonly state: string; readonly message: string | null };
}

async function run(body: Record<string, unknown>): Promise<{ id: string; job: Job }> {
  const id = await cluster.submit(body);
  let job: Job | undefined;
  await cluster.until(async () => {
    job = (await (await cluster.request("GET", `/api/v1/jobs/${id}`)).json()) as Job;
    if (job.state === "failed") throw new Error(JSON.stringify(job.failure));
    return job.state === "succeeded" && job.model.state !== "pending";
  }, `the model of ${id} is registered`);
  return { id, job: job as Job };
}

async function ready(id: string): Promise<Record<string, unknown>> {
  let model: Record<string, unknown> = {};
  const isReady = async () => {
    const reply = await cluster.request("GET", `/api/v1/models/${id}`);
    model = (await reply.json()) as Record<string, unknown>;
    return model["status"] === "ready";
  };
  await cluster.until(isReady, `${id} is ready`);
  return model;
}

const sha256 = (bytes: ArrayBuffer) =>
  createHash("sha256").update(Buffer.from(bytes)).digest("hex");

test("model.gguf of a job: registered with its lineage, and answers", async () => {
  const { id, job } = await run(trainer("first", 1, { register_as: "mine" }));
  expect(job.model).toEqual({ id: "mine", state: "registered", message: null });
  const artifact = await cluster.request("GET", `/api/v1/jobs/${id}/artifacts/model.gguf`);
  const digest = sha256(await artifact.arrayBuffer());
  expect(await ready("mine")).toMatchObject({
    context_window: 512,
    stand_in: false,
    backing: `model.gguf of the job first (${id})`,
    weights: { sha256: digest, sources: [`artifact://${id}/1/0/model.gguf`] },
    lineage: {
      job_id: id,
      job_name: "first",
      algorithm: "own",
      attempt: 1,
      sha256: digest,
      data_sha256: DATA_SHA256,
      code_version: "7",
      step: 9,
      loss: 1.5,
    },
  });
  const answer = await cluster.openai.chat.completions.create({
    model: "mine",
    max_tokens: 4,
    temperature: 0,
    messages: [{ role: "user", content: "hello" }],
  });
  expect(answer.usage?.completion_tokens).toBeGreaterThan(0);
});

test("trained again: refused under the same id, or replaces it if the job says so", async () => {
  const again = trainer("again", 2, { register_as: "mine" });
  const refused = await cluster.request("POST", "/api/v1/jobs", again);
  expect(refused.status).toBe(409);
  expect(await refused.text()).toContain("config.replace_model");
  const before = (await ready("mine"))["deployment"];
  const { id } = await run(trainer("again", 2, { register_as: "mine", replace_model: true }));
  const after = await ready("mine");
  expect(after).toMatchObject({ lineage: { job_id: id } });
  expect(after["deployment"]).not.toBe(before);
});

test("another worker: gets the model from the one that made it", async () => {
  const model = await ready("mine");
  const { weights } = model as unknown as { weights: { sources: string[]; sha256: string } };
  const body = {
    id: "everywhere",
    context_window: 512,
    replicas: "every-worker",
    weights: { sources: weights.sources, sha256: weights.sha256, file: "copy.gguf" },
  };
  const reply = await cluster.request("POST", "/api/v1/models", body);
  expect(reply.status).toBe(200);
  const isEverywhere = async () => {
    const { replicas } = await ready("everywhere");
    const phases = (replicas as { node: string; phase: string }[]).map(({ phase }) => phase);
    return phases.length === 2 && phases.every((phase) => phase === "ready");
  };
  await cluster.until(isEverywhere, "both workers have it");
});

test("no model: the job has succeeded, and says what is missing", async () => {
  const body = trainer("empty", 3, { register_as: "nothing" });
  const { job } = await run({ ...body, command: "echo x > $HEDDLE_ARTIFACT_DIR/other" });
  expect(job.model).toMatchObject({ id: "nothing", state: "failed" });
  expect(job.model.message).toMatch(/has no artifact model.gguf. There are other\./);
  expect((await cluster.request("GET", "/api/v1/models/nothing")).status).toBe(404);
});
