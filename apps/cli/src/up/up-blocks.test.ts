// holds: plugins-block-steps

import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import type { JobMetrics } from "@heddle/contracts/api/job-replies";
import type { PipelineView } from "@heddle/contracts/api/pipelines/operations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// The guide's block in a cluster of `heddle up --plugins`, whose process and worker are killed.

const TIMEOUT_MS = 200_000;
const LINES = 150;
const scratch = mkdtempSync(join(tmpdir(), "heddle-up-blocks-"));
chmodSync(scratch, 0o755);
const plugin = join(scratch, "plugin");
const resources = { cpu_cores: 0.1, memory_gb: 0.2 };
let cluster: DrivenProcess;
let port = 0;

beforeAll(async () => {
  const page = readFileSync(new URL("../../../../docs/guide/plugins.md", import.meta.url), "utf8");
  const samples = [...page.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code = ""]) => code);
  const sample = samples.find((code) => code.includes("blocks.add("));
  mkdirSync(plugin);
  writeFileSync(join(plugin, "index.mjs"), sample ?? "");
  port = await freePort();
  const place = ["--data", join(scratch, "data"), "--port", String(port), "--profile", "tiny"];
  const flags = [...place, "--plugins", plugin];
  cluster = new DrivenProcess([process.execPath, programOf("cli"), "up", ...flags], {
    HEDDLE_DRAIN_MS: "300",
  });
  await cluster.printed(/Ctrl-C stops everything/);
});
afterAll(async () => {
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

async function call<Reply>(method: string, path: string, body?: object): Promise<Reply> {
  const key = readFileSync(join(scratch, "data", "bootstrap-key"), "utf8").trim();
  const reply = await fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  expect(reply.ok, text).toBe(true);
  const isJson = reply.headers.get("content-type")?.includes("json");
  return (isJson ? JSON.parse(text) : text) as Reply;
}

interface Job {
  readonly state: string;
  readonly attempt: number;
  readonly executor: string;
  readonly failure: unknown;
  readonly progress: { readonly step: number; readonly checkpoint?: unknown } | null;
}

/** Submits a pipeline of the block between two others; the id of each step's job. */
async function submit(name: string): Promise<Record<string, string>> {
  const out = { outputs: { text: "file" } };
  const write = `for i in $(seq ${LINES}); do echo "a line $i"; done > "$HEDDLE_ARTIFACT_DIR/text"`;
  const steps = {
    write: { block: "shell", config: { command: write, ...out }, resources },
    count: { block: "text/count@1", inputs: { text: "write.text" }, retry_limit: 1 },
    show: {
      block: "shell",
      config: { command: "cat inputs/counts" },
      inputs: { counts: "count.counts" },
      when: [{ input: "counts", field: "words", at_least: 1 }],
      resources,
    },
  };
  const { jobs } = await call<PipelineView>("POST", "/pipelines", { name, reuse: false, steps });
  return Object.fromEntries(jobs.map(({ step, job }) => [step, String(job)]));
}

const jobOf = (id: string) => call<Job>("GET", `/jobs/${id}`);

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  await eventually(condition, what, TIMEOUT_MS);
}

/** Ends what this cluster runs as that program, and no other's. */
function kill(program: RegExp): void {
  const text = execFileSync("ps", ["-wweo", "pid=,args="], { maxBuffer: 2 ** 26 }).toString();
  const own = text.split("\n").filter((line) => program.test(line) && line.includes(scratch));
  expect(own.length).toBeGreaterThan(0);
  for (const line of own) process.kill(Number.parseInt(line, 10), "SIGKILL");
}

async function counts(id: string): Promise<void> {
  await until("it has counted", async () => {
    const { state, failure } = await jobOf(id);
    expect(state, JSON.stringify(failure)).not.toBe("failed");
    return state === "succeeded";
  });
}

async function outcome({ show = "", count = "" }: Record<string, string>): Promise<void> {
  await counts(count);
  await counts(show);
  const log = await call<string>("GET", `/jobs/${show}/logs?stream=stdout&follow=true`);
  expect(JSON.parse(log)).toEqual({ words: 3 * LINES });
}

test("blocks: a step whose process is killed resumes, and the next has its output", async () => {
  const jobs = await submit("killed");
  const { count = "" } = jobs;
  await until("it has counted some", async () => ((await jobOf(count)).progress?.step ?? 0) > 20);
  expect((await jobOf(count)).executor).toBe("block");
  kill(/blocks\/block-main/);
  await outcome(jobs);
  expect(await jobOf(count)).toMatchObject({ attempt: 2, progress: { step: LINES + 1 } });
  const log = await call<string>("GET", `/jobs/${count}/logs?stream=stdout&attempt=2`);
  const [, from = "0"] = /from line (\d+)/.exec(log) ?? [];
  expect(Number(from)).toBeGreaterThan(20);
  const { series } = await call<JobMetrics>("GET", `/jobs/${count}/metrics?name=words`);
  expect(series[0]?.points.at(-1)).toMatchObject({ step: LINES, max: 3 * LINES });
});

test("blocks: a step whose worker is killed ends with the same result", async () => {
  const jobs = await submit("orphaned");
  const { count = "" } = jobs;
  await until("it has counted some", async () => ((await jobOf(count)).progress?.step ?? 0) > 20);
  kill(/apps\/worker\/dist\/main/);
  await outcome(jobs);
});
