// holds: jobs-fields, jobs-inputs

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { held } from "@heddle/base/testing/held";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { JobCluster } from "../../test/job-cluster.ts";

let cluster: JobCluster;
const resources = { cpu_cores: 0.1, memory_gb: 0.2 };

beforeAll(async () => {
  cluster = new JobCluster(1, { leaseMs: 60_000, nodeLostMs: 30_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1");
  await cluster.takesJobs("worker-1");
});
afterEach((context) => cluster.clear(context));
afterAll(() => cluster.close());

/** Runs the job and returns its standard output. */
async function outputOf(spec: Readonly<Record<string, unknown>>): Promise<string> {
  const id = await cluster.submit({ resources, ...spec });
  await cluster.reaches(id, "succeeded");
  return cluster.logs(id, "stream=stdout&follow=true");
}

test("program: arguments, variables and folder are those of the spec", async () => {
  const folder = join(cluster.masters.folder, "a folder");
  mkdirSync(folder, { recursive: true });
  const list = held(outputOf({ name: "list", command: ["printf", "%s|", "a b", "$HOME", ""] }));
  const line = held(
    outputOf({
      name: "line",
      command: 'echo "$A, $HEDDLE_RANK"; pwd',
      working_directory: folder,
      environment_variables: { A: "b 'c'" },
    }),
  );
  expect(await list).toBe("a b|$HOME||");
  expect(await line).toBe(`b 'c', 0\n${folder}\n`);
});

test("program with an algorithm: receives its name and hyperparameters", async () => {
  const text = await outputOf({
    name: "told",
    algorithm: "ppo",
    config: { learning_rate: 0.25 },
    command: 'echo "$HEDDLE_ALGORITHM"; cat "$HEDDLE_CONFIG_FILE"',
  });
  const [algorithm = "", config = ""] = text.trim().split("\n");
  expect(algorithm).toBe("ppo");
  expect(JSON.parse(config)).toMatchObject({ learning_rate: 0.25 });
  const plain = { name: "plain", command: 'echo "[$HEDDLE_ALGORITHM$HEDDLE_CONFIG_FILE]"' };
  expect(await outputOf(plain)).toBe("[]\n");
});

test("checkpoints: requested at their interval by their signal, pruned to the count", async () => {
  const save =
    'n=$((n+1)); touch $HEDDLE_CHECKPOINT_DIR/c$n; echo "{\\"step\\": $n, \\"checkpoint\\": \\"c$n\\"}" >> $HEDDLE_PROGRESS_FILE';
  const id = await cluster.submit({
    name: "saves",
    resources,
    command: `n=0; trap '${save}' USR2; while [ $n -lt 4 ]; do sleep 0.1; done; trap '' USR2; until [ $(ls $HEDDLE_CHECKPOINT_DIR | wc -l) = 1 ]; do sleep 0.1; done; echo "c$n of"; ls $HEDDLE_CHECKPOINT_DIR`,
    checkpoint_config: { interval_seconds: 1, signal: "SIGUSR2", keep: 1 },
  });
  await cluster.reaches(id, "succeeded");
  expect(await cluster.logs(id, "stream=stdout&follow=true")).toMatch(/^(c\d+) of\n\1\n$/);
});

// holds: jobs-suspend
test("suspend: the job has its grace period to save, and no longer", async () => {
  const id = await cluster.submit({
    name: "stubborn",
    resources,
    checkpoint_config: { grace_seconds: 2 },
    command: "trap '' TERM USR1; echo begins; while :; do sleep 0.1; done",
  });
  await cluster.reaches(id, "running");
  await eventually(async () => (await cluster.logs(id)).startsWith("begins"), "it has begun");
  await cluster.call("POST", `/jobs/${id}/suspend`);
  await cluster.reaches(id, "suspended");
  await eventually(async () => {
    return (await cluster.worker("worker-1")).jobs?.tasks.length === 0;
  }, "nothing of it is left");
  await cluster.call("POST", `/jobs/${id}/resume`);
  expect(await cluster.reaches(id, "running")).toMatchObject({ attempt: 2, failures: 0 });
  await cluster.call("DELETE", `/jobs/${id}`);
  await cluster.reaches(id, "cancelled");
});

test("inputs: artifacts of other jobs lie in the task's folder, verified", async () => {
  const first = await cluster.submit({
    name: "maker",
    command:
      'printf 0.75 > "$HEDDLE_ARTIFACT_DIR/score"; echo "{\\"loss\\": 2}" > "$HEDDLE_ARTIFACT_DIR/scores.json"',
    resources,
  });
  const inputs = [
    { name: "score", job: first, artifact: "score" },
    { name: "all", job: first, artifact: "scores.json" },
  ];
  const reader = { command: 'cat "$HEDDLE_INPUT_DIR/score" inputs/all', inputs };
  const met = {
    when: [
      { input: "score", at_least: 0.5 },
      { input: "all", field: "loss", equals: 2 },
    ],
  };
  // It is submitted before the first has ended, and waits for it.
  expect(await outputOf({ name: "reader", ...reader, ...met })).toBe('0.75{"loss": 2}\n');
});

test("when: a condition that does not hold skips the job, and those with its outputs", async () => {
  const first = await cluster.submit({
    name: "low",
    command: 'echo 0.25 > "$HEDDLE_ARTIFACT_DIR/score"',
    resources,
  });
  const gate = await cluster.submit({
    name: "gate",
    command: 'echo ran; cp inputs/score "$HEDDLE_ARTIFACT_DIR/score"',
    inputs: [{ name: "score", job: first, artifact: "score" }],
    when: [{ input: "score", at_least: 0.5 }],
    resources,
  });
  const inputs = [{ name: "score", job: gate, artifact: "score" }];
  const last = await cluster.submit({ name: "last", command: "echo ran", inputs, resources });
  const skipped = async (id: string) => {
    await cluster.reaches(id, "succeeded");
    expect(await cluster.logs(id, "stream=stdout&follow=true")).toBe("");
    const { task_list: tasks } = await cluster.call<{ task_list: { exit: { message: string } }[] }>(
      "GET",
      `/jobs/${id}`,
    );
    return tasks[0]?.exit.message;
  };
  expect(await skipped(gate)).toBe("skipped: score is 0.25, below 0.5");
  expect(await skipped(last)).toBe("skipped: its input score is of a job that was skipped");
});

test("inputs: what is missing, or has another digest, fails the job with a reason", async () => {
  const first = await cluster.submit({ name: "bare", command: "true", resources });
  const failure = async (input: Readonly<Record<string, unknown>>) => {
    const inputs = [{ name: "file", ...input }];
    const id = await cluster.submit({
      name: `of-${String(input["job"] ?? "net")}`,
      command: "true",
      inputs,
      resources,
    });
    await cluster.reaches(id, "failed");
    return (await cluster.job(id)).failure;
  };
  expect(await failure({ job: first, artifact: "none" })).toMatchObject({
    reason: "Unsatisfiable",
    message: expect.stringContaining("its input file is not there"),
  });
  const source = "https://example.invalid/data";
  expect(await failure({ source, sha256: "0".repeat(64) })).toMatchObject({
    message: expect.stringMatching(/its input file could not be had: .*example\.invalid/s),
  });
});
