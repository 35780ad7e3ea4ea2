// holds: train-crash-loop

import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// Jobs whose trainers crash at once, each time. Master, worker and parameter server are processes;
// a plugin's environment crashes the trainers from within.

/**
 * Prints its last lines in each attempt, and ends by a signal, out of memory, or with its own code.
 */
const PLUGIN = `
const deaths = {
  "Signal-v0": () => process.kill(process.pid, "SIGKILL"),
  // More than any address space has.
  "Memory-v0": () => new ArrayBuffer(2 ** 52),
  "Code-v0": () => process.exit(9),
};
const world = (name, die) => ({
  name, observations: 1, actions: 2, continuous: false, maxSteps: 9,
  reset: () => {
    for (let line = 1; line <= 40; line++) console.log("last words " + line);
    die();
  },
  step: () => ({ reward: 0, terminated: true }),
});
export default {
  name: "deaths", version: "1.0.0", apiVersion: 1,
  setup: ({ environments }) => {
    for (const [name, die] of Object.entries(deaths)) {
      environments.add(name, () => world(name, die));
    }
  },
};
`;

let folder = "";
let cluster: ProcessCluster;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "heddle-crashes-"));
  // A trainer reads its plugins as another user.
  chmodSync(folder, 0o755);
  const plugin = join(folder, "deaths.mjs");
  writeFileSync(plugin, PLUGIN);
  cluster = await ProcessCluster.start({ workers: 1, workerFlags: ["--plugins", plugin] });
  await cluster.startParameterServer("p");
});
afterAll(async () => {
  await cluster.close();
  rmSync(folder, { recursive: true });
});

interface Job {
  readonly state: string;
  readonly attempt: number;
  readonly failures: number;
  readonly losses: number;
  readonly failure: {
    readonly reason: string;
    readonly cause: string | null;
    readonly message: string;
    readonly last_lines: readonly string[];
  } | null;
}

async function submit(name: string, environment: string, more: object): Promise<string> {
  const body = { name, algorithm: "ppo", config: { environment }, ...more };
  const resources = { cpu_cores: 0.5, memory_gb: 1 };
  return cluster.submit({ resources, ...body });
}

async function get(path: string): Promise<Response> {
  return cluster.request("GET", `/api/v1/${path}`);
}

/** The job once it has failed, and the output of all its attempts. */
async function failed(id: string): Promise<{ readonly job: Job; readonly logs: string }> {
  let job: Job | undefined;
  const poll = async () => {
    job = (await (await get(`jobs/${id}`)).json()) as Job;
    return job.state === "failed";
  };
  await cluster.until(poll, `${id} has failed`, 200_000);
  return { job: job as Job, logs: await (await get(`jobs/${id}/logs?attempt=all`)).text() };
}

const countOf = (text: string, part: string) => text.split(part).length - 1;

test("crash loops: jobs fail with reason and last lines, and leave no shards", async () => {
  const jobs = await Promise.all([
    submit("signal", "Signal-v0", { retry_limit: 1 }),
    submit("memory", "Memory-v0", { retry_limit: 1 }),
    submit("code", "Code-v0", { retry_limit: 0 }),
    submit("elastic", "Signal-v0", { retry_limit: 0, tasks: 2, failure_tolerance: 1 }),
  ]);
  const [signal, memory, code, elastic] = await Promise.all(jobs.map(failed));

  expect(signal?.job).toMatchObject({ attempt: 2, failures: 2, losses: 0 });
  expect(signal?.job.failure).toMatchObject({ reason: "RetryLimitExceeded", cause: "ExitCode" });
  expect(signal?.job.failure?.message).toContain("SIGKILL");

  expect(memory?.job).toMatchObject({ attempt: 2, failures: 2 });
  expect(memory?.job.failure).toMatchObject({ reason: "RetryLimitExceeded", cause: "OutOfMemory" });
  expect(memory?.job.failure?.message).toContain("resources.memory_gb");

  expect(code?.job).toMatchObject({ attempt: 1, failure: { reason: "ExitCode" } });
  expect(code?.job.failure?.message).toContain("exit code 9");

  // Within its tolerance each crash is a loss, until the crash loop is detected. Both ranks at once
  // exceed the tolerance, which is a loss with another attempt.
  expect(elastic?.job).toMatchObject({ failures: 1, failure: { reason: "ExitCode" } });
  expect(elastic?.job.failure?.message).toMatch(/was ended by SIGKILL 3 times in a row/);

  for (const one of [signal, memory, code, elastic]) {
    expect(one?.job.failure?.last_lines.join("\n")).toContain("last words 40");
  }
  // The output of each attempt is kept.
  for (const one of [signal, memory]) expect(countOf(one?.logs ?? "", "last words 40")).toBe(2);

  const held = async () => {
    const { data } = (await (await get("workers")).json()) as {
      data: readonly { name: string; shards: { held: number } | null }[];
    };
    return data.find(({ name }) => name === "p")?.shards?.held;
  };
  await cluster.until(async () => (await held()) === 0, "the server holds no shard");
  for (const id of jobs) expect(existsSync(join(cluster.data, "p", "checkpoints", id))).toBe(false);
});
