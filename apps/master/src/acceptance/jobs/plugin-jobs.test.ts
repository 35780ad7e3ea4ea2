// holds: plugins-admission, plugins-scheduler, plugins-blocks

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "@heddle/base/testing/eventually";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProcessCluster } from "../../../test/process-cluster.ts";

// Jobs of a cluster whose plugin reviews them and chooses their nodes.

const folder = mkdtempSync(join(tmpdir(), "heddle-plugin-jobs-"));
let cluster: ProcessCluster;

const POLICY = `
export default { name: "policy", version: "1", apiVersion: 1, capabilities: ["admission", "scheduler"],
  setup({ admission, scheduler }) {
    admission.add({ name: "owner", review(job, { caller }) {
      if (job.labels.owner === "unknown") return { refuse: "give a real owner", param: "labels.owner" };
      if (job.labels.owner === "broken") return { change: { retry_limit: -1 } };
      if (job.labels.owner === "hangs") return new Promise(() => {});
      if (job.labels.owner === "throws") throw new Error("oh no");
      if (job.labels.owner) return undefined;
      return { change: { labels: { ...job.labels, owner: caller.name.replaceAll(" ", "-") } } };
    } });
    admission.add({ name: "optional", onFailure: "admit", review(job) {
      if (job.labels.team === "y") return { change: { retry_limit: -1 } };
      throw new Error("always");
    } });
    scheduler.filter({ name: "zones", admits: (job, node) => !job.labels.zone || node.labels.zone === job.labels.zone });
    scheduler.score({ name: "prefer", score(job, node) {
      if (job.labels.slow) for (;;);
      return node.labels.zone === (job.labels.prefer ?? "a") ? 1 : 0;
    } });
  } };`;

const WORDS = String.raw`
import { definePlugin, refusal, z } from "heddle/plugin-kit";
export default definePlugin({ name: "words", version: "1", apiVersion: 1, capabilities: ["blocks"],
  setup({ blocks }) {
    blocks.add({ name: "count", version: 2, summary: "Counts the words of a text.",
      config: z.strictObject({ least: z.number().default(0) }),
      inputs: { text: { type: "file" } },
      outputs: { scores: { type: "scores", artifact: "scores.json" } },
      job({ config, inputs }) {
        if (config.least === 13) throw refusal("invalid_value", "13 is not for sale", "least");
        if (config.least === 14) throw new Error("oh no");
        if (config.least === 15) return { command: "true", resources: { gpu_count: 1 } };
        const line = 'printf \'{"words": %d, "least": %s}\' "$(wc -w < "inputs/$1")" "$2" > "$HEDDLE_ARTIFACT_DIR/scores.json"';
        return { command: ["sh", "-c", line, "sh", inputs[0], String(config.least)] };
      } });
  } });`;

beforeAll(async () => {
  const files = Object.entries({ policy: POLICY, words: WORDS }).map(([name, text]) => {
    const file = join(folder, `${name}.mjs`);
    writeFileSync(file, text);
    return file;
  });
  cluster = await ProcessCluster.start({ workers: 0, masterFlags: ["--plugins", files.join()] });
  for (const zone of ["a", "b"]) await cluster.startWorker(["--labels", `zone=${zone}`]);
  await cluster.replicasReady(2);
});
afterAll(async () => {
  await cluster.close();
  rmSync(folder, { recursive: true });
});

interface JobView {
  readonly state: string;
  readonly task_list: readonly { readonly node: string }[];
  readonly explanation: unknown;
  readonly spec: { readonly labels: Readonly<Record<string, string>> };
}

let count = 0;
const bodyOf = (labels: Readonly<Record<string, string>>) => ({
  name: `job-${++count}`,
  command: "true",
  resources: { cpu_cores: 0.1, memory_gb: 0.1 },
  labels,
});

async function get(id: string): Promise<JobView> {
  return (await (await cluster.request("GET", `/api/v1/jobs/${id}`)).json()) as JobView;
}

/** The zone in which a job of these labels runs. */
async function zoneOf(labels: Readonly<Record<string, string>>): Promise<string | undefined> {
  const id = await cluster.submit({ ...bodyOf(labels), command: "sleep 60" });
  const nodeOf = async () => (await get(id)).task_list[0]?.node;
  await eventually(async () => (await nodeOf()) !== undefined, `${id} has a node`);
  const worker = await cluster.request("GET", `/api/v1/workers/${await nodeOf()}`);
  await cluster.request("DELETE", `/api/v1/jobs/${id}`);
  const { jobs } = (await worker.json()) as { jobs: { labels: Record<string, string> } };
  return jobs.labels["zone"];
}

async function submit(labels: Readonly<Record<string, string>>, query = "") {
  const reply = await cluster.request("POST", `/api/v1/jobs${query}`, bodyOf(labels));
  return { status: reply.status, body: (await reply.json()) as Record<string, unknown> };
}

async function timesThrown(): Promise<number> {
  const reply = await cluster.request("GET", "/api/v1/plugins/policy");
  const { faults } = (await reply.json()) as { faults: { threw: number } };
  return faults.threw;
}

test("admission: a rule changes a job; the next sees it; a failing optional one admits", async () => {
  for (const team of ["x", "y"]) {
    const id = await cluster.submit(bodyOf({ team }));
    const { spec } = await get(id);
    expect(spec.labels).toEqual({ team, owner: "bootstrap-administrator" });
  }
});

test("admission: a refusal names rule, plugin and field, in a dry run too", async () => {
  for (const query of ["", "?dry_run=true"]) {
    expect(await submit({ owner: "unknown" }, query)).toMatchObject({
      status: 422,
      body: {
        detail: "The rule owner of the plugin policy refuses the job: give a real owner",
        errors: [{ pointer: "#/labels/owner" }],
      },
    });
  }
});

test("admission: rules that fail, hang or make a job invalid refuse it as such", async () => {
  const before = await timesThrown();
  const broken = await submit({ owner: "broken" });
  expect(broken).toMatchObject({
    status: 503,
    body: { detail: expect.stringMatching(/not valid: .*retry_limit/) },
  });
  expect(await timesThrown()).toBe(before + 1);
  const thrown = await submit({ owner: "throws" });
  expect(thrown).toMatchObject({ status: 503, body: { retryable: true } });
  const hung = await submit({ owner: "hangs" });
  expect(hung).toMatchObject({ status: 503, body: { detail: expect.stringContaining("2000 ms") } });
});

test("scheduler: a filter excludes nodes and a score chooses among the others", async () => {
  expect(await zoneOf({ zone: "b" })).toBe("b");
  expect(await zoneOf({ prefer: "b" })).toBe("b");
  expect(await zoneOf({ prefer: "a" })).toBe("a");
});

test("scheduler: a job that a filter excludes everywhere waits, and says so", async () => {
  const { body } = await submit({ zone: "c" });
  const id = String(body["job_id"]);
  const waits = async () =>
    JSON.stringify((await get(id)).explanation).includes("excluded by a plugin's filter");
  await eventually(waits, "the explanation names the filter");
  await delay(3_000); // The leader's last plan is old; nothing has it make another one.
  expect((await get(id)).explanation).toMatchObject({
    nodes: { rejected: { plugin: 2 } },
    tasks_that_fit: 0,
    start_estimate: { earliest: null },
    changes: [],
  });
  expect(await waits()).toBe(true);
  expect((await get(id)).state).not.toBe("failed");
  await cluster.request("DELETE", `/api/v1/jobs/${id}`);
});

const shell = (command: string, more: object = {}) => ({
  block: "shell",
  config: { command, outputs: { out: "file" } },
  resources: { cpu_cores: 0.1, memory_gb: 0.1 },
  ...more,
});

/** A pipeline whose second step is of the plugin's block. */
function pipelineOf(config: object, block = "words/count@2") {
  const count = { ...shell(""), block, config, inputs: { text: "write.out" } };
  const show = shell("cat inputs/scores", {
    inputs: { scores: "count.scores" },
    when: [{ input: "scores", field: "words", at_least: 3 }],
  });
  const write = shell('echo one two three > "$HEDDLE_ARTIFACT_DIR/out"');
  return { name: "words", steps: { write, count, show } };
}

async function sendPipeline(pipeline: object, query = "") {
  const reply = await cluster.request("POST", `/api/v1/pipelines${query}`, pipeline);
  return { status: reply.status, body: (await reply.json()) as Record<string, unknown> };
}

test("blocks: a step of a plugin's block has the inputs and leaves the outputs", async () => {
  const { status, body } = await sendPipeline(pipelineOf({ least: 2 }));
  expect(status, JSON.stringify(body)).toBe(202);
  const jobs = body["jobs"] as readonly { readonly step: string; readonly job: string }[];
  const last = jobs.find(({ step }) => step === "show")?.job;
  const isEnded = async () => (await get(String(last))).state === "succeeded";
  await eventually(isEnded, "the last step has succeeded");
  const log = await cluster.request("GET", `/api/v1/jobs/${last}/logs?stream=stdout&follow=true`);
  expect(await log.text()).toBe('{"words": 3, "least": 2}');
  const again = await sendPipeline(pipelineOf({ least: 1 }), "?dry_run=true");
  const reused = again.body["jobs"] as readonly { readonly reused: boolean }[];
  expect(reused.map((each) => each.reused)).toEqual([true, false, false]);
  const listed = await cluster.request("GET", "/api/v1/blocks");
  const { data } = (await listed.json()) as { data: { id: string; config: object }[] };
  expect(data.find(({ id }) => id === "words/count@2")).toMatchObject({
    inputs: [{ name: "text", type: "file", required: true }],
    outputs: [{ name: "scores", type: "scores" }],
    config: { properties: { least: { type: "number" } } },
  });
});

test("blocks: what a plugin refuses, or does wrong, is named with its step", async () => {
  const send = async (config: object, block?: string) => {
    const { status, body } = await sendPipeline(pipelineOf(config, block), "?dry_run=true");
    return `${status} ${JSON.stringify(body)}`;
  };
  expect(await send({ least: "x" })).toMatch(/^422 .*#\/steps\/count\/config\/least/);
  expect(await send({ most: 1 })).toMatch(/^422 .*steps\.count\.config\.most/);
  expect(await send({ least: 13 })).toMatch(/^422 .*13 is not for sale/);
  expect(await send({ least: 14 })).toMatch(/^500 .*words\/count@2 of the step count/);
  expect(await send({ least: 15 })).toMatch(/^500 .*words\/count@2 of the step count/);
  expect(await send({}, "words/count@1")).toMatch(
    /^422 .*no block words\/count@1;.* words\/count@2/,
  );
  expect(await send({}, "other/count")).toMatch(/^422 .*no block other\/count/);
});

test("scheduler: a score that blocks holds a job for seconds and the master for none", async () => {
  let id = "";
  // On a loaded machine the score may be given up before many answers.
  await eventually(async () => {
    id = await cluster.submit(bodyOf({ slow: "yes" }));
    let answers = 0;
    for (; (await get(id)).task_list.length === 0; answers++) await delay(100);
    return answers >= 8;
  }, "the master answers while the score blocks");
  await eventually(async () => (await get(id)).state === "succeeded", "it ran without the score");
});
