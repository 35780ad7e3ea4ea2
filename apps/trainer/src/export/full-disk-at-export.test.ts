import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { TINY_MODEL } from "@heddle/training/testing/tiny-language-model";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  distance,
  TrainingCluster,
  type TrainingJob,
  weightsOf,
} from "../../test/training-cluster.ts";

// Trainers that are done and cannot write their artifacts: real processes.

let cluster: TrainingCluster;
let server: ServerProcess;
let text = "";

beforeAll(async () => {
  cluster = new TrainingCluster();
  server = await cluster.startServer("s0");
  text = cluster.writeText();
});
afterAll(() => cluster.close());

const model = () => ({ ...TINY_MODEL, data: text, total_steps: 60, local_steps: 4 });

/** The directory of a task's artifacts before its start. */
function artifactsOf(job: TrainingJob): string {
  const folder = join(cluster.folder, job.id, "1.0", "artifacts");
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Runs an attempt that fails at its export; returns it with its last checkpoint. */
async function failedExport(job: TrainingJob) {
  const trainer = job.start();
  expect(await trainer.ended(), trainer.output).toBe(74);
  expect(trainer.output).not.toMatch(/^ +at /m);
  const resumeFrom = trainer.progress().findLast(({ checkpoint }) => checkpoint)?.checkpoint ?? "";
  expect(resumeFrom).not.toBe("");
  return { trainer, resumeFrom };
}

test("full disk: one line reports it, and a retry only exports the language model", async () => {
  const unbroken = cluster.job("weave", model(), [server]).start();
  await unbroken.succeeded();
  const job = cluster.job("weave", model(), [server]);
  // A rename onto a folder that is not empty fails.
  const place = join(artifactsOf(job), "model.gguf");
  mkdirSync(join(place, "full"), { recursive: true });
  const { trainer, resumeFrom } = await failedExport(job);
  expect(trainer.output.trimEnd().split("\n").at(-1)).toMatch(
    /^the task failed \(unavailable\): cannot write the artifact \/.*\/model\.gguf: E.*; is the disk full\?$/,
  );
  const second = job.start({ attempt: 2, resumeFrom });
  await second.succeeded();
  expect(second.metrics()).toEqual([]);
  expect(second.output).toContain("done at step 60;");
  const [left, right] = await Promise.all(
    [second, unbroken].map((each) => weightsOf(each.artifact("model.gguf"))),
  );
  expect(distance(left ?? new Map(), right ?? new Map())).toBe(0);
});

test("full disk: without its own state a model is exported from the servers", async () => {
  const job = cluster.job("weave", model(), [server]);
  mkdirSync(join(artifactsOf(job), "model.gguf", "full"), { recursive: true });
  writeFileSync(join(cluster.folder, job.id, "checkpoints"), "a file where the folder would be");
  const { trainer, resumeFrom } = await failedExport(job);
  expect(trainer.output).toMatch(/^warn: rank 0 cannot keep its own state .*is the disk full\?$/m);
  const second = job.start({ attempt: 2, resumeFrom });
  await second.succeeded();
  expect(existsSync(second.artifact("model.gguf"))).toBe(true);
});

test("full disk: a policy that reached its return is exported by the retry alone", async () => {
  const config = { total_timesteps: 400_000, num_steps: 64, seed: 3, target_return: 30 };
  const unbroken = cluster.job("ppo", config, [server]).start();
  await unbroken.succeeded();
  const job = cluster.job("ppo", config, [server]);
  // A device on which every write fails for lack of space.
  symlinkSync("/dev/full", join(artifactsOf(job), "policy.onnx"));
  const { trainer, resumeFrom } = await failedExport(job);
  expect(trainer.output).toMatch(
    /cannot write the artifact .*\/policy\.onnx: ENOSPC.*disk full\?$/m,
  );
  expect(existsSync(trainer.artifact("policy.onnx"))).toBe(false);
  const second = job.start({ attempt: 2, resumeFrom });
  await second.succeeded();
  expect(second.metrics()).toEqual([]);
  const policy = (each: typeof trainer) => readFileSync(each.artifact("policy.onnx"));
  expect(policy(second).equals(policy(unbroken))).toBe(true);
});
