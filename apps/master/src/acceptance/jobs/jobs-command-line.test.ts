// holds: cli-jobs

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buffer, text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { eventually } from "@heddle/base/testing/eventually";
import { programOf } from "@heddle/base/testing/programs";
import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { JobCluster } from "../../../test/job-cluster.ts";

const MAIN = programOf("cli");
const EXAMPLES = fileURLToPath(new URL("../../../../../examples/", import.meta.url));
const SMALL = { cpu_cores: 0.2, memory_gb: 0.2 };

let cluster: JobCluster;
beforeAll(async () => {
  cluster = new JobCluster(1, { leaseMs: 30_000, nodeLostMs: 20_000 });
  await cluster.masters.startAll();
  await cluster.startWorker("worker-1", { simulatedGpus: simulatedGpus("4xH100-80GB") });
  await eventually(async () => {
    const { stdout } = await heddle(["workers", "list", "-o", "json"]);
    return JSON.parse(stdout || "[]")[0]?.jobs?.state === "ready";
  }, "the worker takes jobs");
});
afterEach((context) => cluster.clear(context));
afterAll(() => cluster.close());

/** With `bytes`, the caller reads standard output itself. */
function start(args: readonly string[], as: "text" | "bytes" = "text") {
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: {
      PATH: process.env["PATH"],
      NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"],
      HEDDLE_DATA: join(cluster.masters.folder, "none"),
      HEDDLE_ENDPOINT: cluster.masters.url("master-1") ?? "http://127.0.0.1:9",
      HEDDLE_API_KEY: cluster.masters.adminKey,
    },
  });
  const ended = once(child, "close").then(async ([code]) => code as number | null);
  return {
    child,
    ended,
    stdout: as === "text" ? text(child.stdout) : Promise.resolve(""),
    stderr: text(child.stderr),
  };
}

/** Runs the command line as a process to its end. */
async function heddle(args: readonly string[], input = "") {
  const { child, ended, stdout, stderr } = start(args);
  // A command that reads no input may end before it arrives.
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  return { code: await ended, stdout: await stdout, stderr: await stderr };
}

async function submit(spec: Readonly<Record<string, unknown>>): Promise<string> {
  const body = JSON.stringify({ resources: SMALL, ...spec });
  const { code, stdout, stderr } = await heddle(["jobs", "submit", "-"], body);
  expect(code, stderr).toBe(0);
  return stdout.trim();
}

const stateOf = async (id: string) => (await cluster.job(id)).state;

describe("jobs from the command line", () => {
  it("run examples/hello.yaml: submit, watch, and read the log again", async () => {
    const run = await heddle(["jobs", "submit", join(EXAMPLES, "hello.yaml"), "--watch"]);
    expect(run.code, run.stderr).toBe(0);
    const [id = "", ...updates] = run.stdout.trim().split("\n");
    const phases = updates.map((line) => /^\d\d:\d\d:\d\d (\w+)/.exec(line)?.[1]).filter(Boolean);
    expect(phases).toEqual([
      "ACCEPTED",
      "PENDING",
      "SCHEDULED",
      "STARTING",
      "RUNNING",
      "SUCCEEDED",
    ]);
    const wanted = [1, 2, 3, 4].map((step) => `hello from worker-1, step ${step}`);
    const logs = await heddle(["jobs", "logs", id, "-f"]);
    expect(logs).toEqual({ code: 0, stdout: `${wanted.join("\n")}\n`, stderr: "" });
    const tail = await heddle(["jobs", "logs", id, "--tail", "1", "--stream", "stdout"]);
    expect(tail.stdout).toBe(`${wanted[3]}\n`);
    expect((await heddle(["jobs", "wait", id])).code).toBe(0);
    const shown = await heddle(["jobs", "get", id]);
    expect(shown.stdout).toMatch(/^state +succeeded since /m);
    expect(shown.stdout).toMatch(/^0 +worker-1 .*exited/m);
    expect((await heddle(["jobs", "get", id, "-o", "name"])).stdout).toBe(`${id}\n`);
    // A name means the newest job that has it.
    expect((await heddle(["jobs", "get", "hello", "-o", "name"])).stdout).toBe(`${id}\n`);
    expect((await heddle(["jobs", "logs", "hello"])).stdout).toBe(logs.stdout);
    expect(await heddle(["jobs", "cancel", "nobody"])).toMatchObject({
      code: 3,
      stderr: /No job has the id or name nobody/,
    });
  });

  // holds: task-simulated-gpu
  it("run examples/gang.yaml: four tasks together on simulated GPUs", async () => {
    const file = join(EXAMPLES, "gang.yaml");
    const explained = await heddle(["jobs", "explain", file]);
    expect(explained).toMatchObject({
      code: 0,
      stdout: /it would start at once \(4 tasks\)\n {2}rank 0 on worker-1 /,
    });
    const run = await heddle(["jobs", "submit", file, "--wait"]);
    expect(run.code, run.stderr).toBe(0);
    const id = run.stdout.trim();
    let lines: string[] = [];
    await eventually(async () => {
      lines = (await heddle(["jobs", "logs", id])).stdout.trim().split("\n").sort();
      return lines.length === 4;
    }, "all four have reported");
    lines.forEach((line, rank) => {
      expect(line).toMatch(`[${rank}] rank ${rank} of 4, GPUs`);
    });
    const devices = new Set(lines.map((line) => /GPUs (\S+),/.exec(line)?.[1]));
    expect(devices.size).toBe(4);
    expect((await heddle(["jobs", "get", id])).stdout).toMatch(/\(simulated\)/);
  });

  // holds: cli-log-bytes
  it("return a log as the exact bytes that were written", async () => {
    const octets = String.raw`printf '\377\376a\000\r\nb\303'; printf '\244\n\355\240\200'`;
    const command = `${octets}; head -c 200000 /dev/urandom; printf 'no end'`;
    const id = await submit({ name: "binary", command });
    expect((await heddle(["jobs", "wait", id])).code).toBe(0);
    const { child, ended } = start(["jobs", "logs", id, "-f", "--stream", "stdout"], "bytes");
    const [printed, code] = [await buffer(child.stdout), await ended];
    const url = `${cluster.masters.url("master-1")}/api/v1/jobs/${id}/logs?stream=stdout`;
    const headers = { authorization: `Bearer ${cluster.masters.adminKey}` };
    const expected = Buffer.from(await (await fetch(url, { headers })).arrayBuffer());
    expect(expected.byteLength).toBe(200_000 + 19);
    expect(code).toBe(0);
    expect(Buffer.compare(printed, expected)).toBe(0);
    const rank = await heddle(["jobs", "logs", id, "--rank", "5"]);
    expect(rank).toMatchObject({ code: 2, stderr: /has no rank 5: it has 1 tasks/ });
    const attempt = await heddle(["jobs", "logs", id, "--attempt", "9", "-f"]);
    expect(attempt).toMatchObject({ code: 2, stderr: /has no attempt 9: it has had 1/ });
  });

  it("exit a wait with 8 if the job failed, and with 130 on Ctrl-C", async () => {
    const id = await submit({ name: "bad", command: "echo last words >&2; exit 3" });
    const waited = await heddle(["jobs", "wait", id]);
    expect(waited.code).toBe(8);
    expect(waited.stderr).toMatch(
      /bad failed\nExitCode \(exit code 3, rank 0, on worker-\d, \S+\)/,
    );
    expect((await heddle(["jobs", "watch", id])).code).toBe(8);
    const long = await submit({ name: "long", command: "sleep 600" });
    const watching = start(["jobs", "watch", long]);
    let seen = "";
    watching.child.stdout.on("data", (piece) => {
      seen += piece;
    });
    await eventually(async () => seen.includes("RUNNING"), "it is seen to run");
    watching.child.kill("SIGINT");
    expect(await watching.ended).toBe(130);
    expect((await heddle(["jobs", "cancel", long])).stderr).toMatch(`${long} is cancel`);
    await eventually(async () => (await stateOf(long)) === "cancelled", "it is cancelled");
    expect((await heddle(["jobs", "wait", long])).code).toBe(8);
  });

  it("print one thing as one object, and updates as a stream of records", async () => {
    const id = await submit({ name: "record", command: "echo hi" });
    expect((await heddle(["jobs", "wait", id, "-o", "name"])).stdout).toBe(`${id}\n`);
    const verbs = [
      `jobs get ${id}`,
      `jobs wait ${id}`,
      "workers get worker-1",
      "workers resume worker-1",
      "queues set default",
      "projects set p",
      "projects get p",
      "keys create k",
      "cluster status",
      "cluster metrics",
      "cluster resources",
      "cluster snapshot",
    ];
    for (const verb of verbs) {
      const { code, stdout, stderr } = await heddle([...verb.split(" "), "-o", "json"]);
      expect(code, stderr).toBe(0);
      expect(Array.isArray(JSON.parse(stdout)), verb).toBe(false);
    }
    const phases = ["ACCEPTED", "PENDING", "SCHEDULED", "STARTING", "RUNNING", "SUCCEEDED"];
    const json = (await heddle(["jobs", "watch", id, "-o", "json"])).stdout.trim().split("\n");
    expect(json.map((line) => JSON.parse(line).phase)).toEqual(phases);
    const yaml = parseAllDocuments((await heddle(["jobs", "watch", id, "-o", "yaml"])).stdout);
    expect(yaml.map((document) => document.toJS().phase)).toEqual(phases);
    const logs = await heddle(["jobs", "logs", id, "-o", "yaml"]);
    expect(parse(logs.stdout)).toMatchObject({ type: "line", text: "hi" });
  });

  it("explain a waiting job with numbers, and change it", async () => {
    const flags = ["--name", "large", "--command", "true", "--gpus", "8", "--tasks", "8"];
    const dry = await heddle(["jobs", "submit", ...flags, "--dry-run"]);
    expect(dry.code).toBe(8);
    expect(dry.stdout).toMatch(/it can never run here/);
    expect(dry.stdout).toMatch(/InsufficientGpu +\S+ +\d+ +\d+ +\d+/);
    expect(dry.stdout.match(/^BLOCKER/gm)).toHaveLength(1);
    const holder = await submit({
      name: "holder",
      command: "sleep 600",
      resources: { ...SMALL, gpu_count: 3 },
    });
    await eventually(async () => (await stateOf(holder)) === "running", "it runs");
    const waits = await submit({
      name: "waits",
      command: "true",
      resources: { ...SMALL, gpu_count: 2 },
    });
    await eventually(async () => (await stateOf(waits)) === "pending", "it waits");
    const explained = await heddle(["jobs", "explain", waits]);
    expect(explained.stdout).toMatch(/^waits is pending\n/);
    expect(explained.stdout).toMatch(/InsufficientGpu/);
    expect(explained.stdout).toMatch(/it would start with \w+ \S+ instead of \S+/);
    const listed = await heddle(["jobs", "list", "--state", "pending,running", "-o", "name"]);
    expect(listed.stdout).toBe(`${waits}\n${holder}\n`);
    const listing = start(["jobs", "list", "--name", "waits", "--watch", "-o", "name"]);
    let painted = "";
    listing.child.stdout.on("data", (piece) => {
      painted += piece;
    });
    await eventually(async () => painted.startsWith(`${waits}\n${waits}\n`), "it is listed twice");
    listing.child.kill("SIGINT");
    expect(await listing.ended).toBe(130);
    expect((await heddle(["jobs", "suspend", waits])).stderr).toBe(`${waits} is suspended\n`);
    expect((await heddle(["jobs", "resume", waits])).stderr).toBe(`${waits} is pending\n`);
    expect((await heddle(["jobs", "cancel", waits, holder])).code).toBe(0);
    expect((await heddle(["jobs", "suspend", waits])).code).toBe(5);
  });

  it("refuse an invalid spec with every fault, request id and exit code 2", async () => {
    const faulty = { name: "x", command: "true", tasks: 0, resources: { cpu_cores: -1 } };
    const refused = await heddle(["jobs", "submit", "-"], JSON.stringify(faulty));
    expect(refused.code).toBe(2);
    expect(refused.stderr).toMatch(/\n {2}#\/resources\/cpu_cores .*\n {2}#\/tasks /);
    expect(refused.stderr).toMatch(/request \S+\n$/);
    const file = join(cluster.masters.folder, "torn.yaml");
    writeFileSync(file, 'name: a\ncommand: "true\n');
    const torn = await heddle(["jobs", "submit", file]);
    expect(torn).toMatchObject({ code: 2, stderr: /torn\.yaml: Missing closing .* at line 2/ });
    expect((await heddle(["jobs", "submit", "-"], "- a\n")).stderr).toMatch(/expected the fields/);
    expect((await heddle(["jobs", "submit"])).stderr).toMatch(/The job spec is missing/);
    expect((await heddle(["jobs", "submit", "no-such.yaml"])).code).toBe(2);
    expect((await heddle(["jobs", "get", "job_none"])).code).toBe(3);
    expect((await heddle(["jobs", "list", "--state", "lost"])).code).toBe(2);
  });

  it("name the file, the field and the remedy where a spec is refused", async () => {
    const file = join(cluster.masters.folder, "job.yaml");
    const refusal = async (text: string, verb = ["submit"]) => {
      writeFileSync(file, text);
      const { code, stderr } = await heddle(["jobs", ...verb, file]);
      expect(code).toBe(2);
      return stderr;
    };
    const nameless = `${file}: Missing required parameter: 'name'. Add the field to the file, or give --name.`;
    expect(await refusal("command: date\n")).toContain(nameless);
    expect(await refusal("command: date\n", ["submit", "--dry-run"])).toContain(nameless);
    expect(await refusal("command: date\n", ["explain"])).toContain(nameless);
    const wrong = await refusal("name: a\ncommand: date\nresources: {gpu_count: many}\n");
    expect(wrong).toMatch(
      /job\.yaml: Invalid value for 'resources\.gpu_count': .*\. Correct the field in the file, or give --gpus\.\n/,
    );
    const { stderr } = await heddle(["jobs", "submit", "-"], "name: a\ncomand: date\n");
    expect(stderr).toMatch(/standard input: .*'comand'.*Correct the field in the file\.\n/);
  });

  it("drain a worker by name and resume it; set queues and list them", async () => {
    const drained = await heddle(["workers", "drain", "worker-1", "--deadline", "30"]);
    expect(drained).toMatchObject({ code: 0, stderr: /^worker-1 is drain/ });
    expect((await heddle(["workers", "get", "worker-1"])).stdout).toMatch(/worker-1 +drain/);
    expect((await heddle(["workers", "resume", "worker-1"])).stderr).toBe("worker-1 is ready\n");
    const got = await heddle(["workers", "get", "worker-1", "-o", "yaml"]);
    expect(got.stdout).toMatch(/^name: "worker-1"$/m);
    expect((await heddle(["workers", "drain", "worker-9"])).code).toBe(3);
    const set = await heddle(["queues", "set", "night", "--strategy", "spread"]);
    expect(set.stdout).toMatch(/night +spread +0/);
    const queues = await heddle(["queues", "list", "-o", "json"]);
    expect(JSON.parse(queues.stdout)).toMatchObject([{ name: "default" }, { name: "night" }]);
  });

  it("set a project's quota and show its usage; metrics have the jobs", async () => {
    const limits = ["--gpus", "4", "--gpu-hours", "10.5", "--max-jobs", "1", "--storage-gb", "2.5"];
    const flags = ["--weight", "2", ...limits];
    const set = await heddle(["projects", "set", "lab", ...flags]);
    expect(set.stdout).toMatch(/lab +2 +0\/4 +0\/10\.5 +1 +0\/2\.5 GB\n/);
    const got = await heddle(["projects", "get", "lab", "-o", "json"]);
    expect(JSON.parse(got.stdout)).toMatchObject({
      weight: 2,
      quota: { gpu_hours: 10.5, storage_bytes: 2.5e9 },
    });
    expect((await heddle(["projects", "list", "-o", "name"])).stdout).toMatch(/^lab$/m);
    expect((await heddle(["projects", "get", "none"])).code).toBe(3);
    expect((await heddle(["projects", "set", "lab", "--gpus", "many"])).code).toBe(2);
    const metrics = await heddle(["cluster", "metrics"]);
    expect(metrics.stdout).toMatch(/JOBS +WAIT FOR +GPU IDLE/);
    expect(metrics.stdout).toMatch(/\d+ succeeded/);
    const resources = await heddle(["cluster", "resources"]);
    expect(resources.stdout).toMatch(/0\/4 H100\S* \(simulated\)/);
  });

  it("exit with 4 without a key, 6 over quota, 7 without a master, 2 for bad flags", async () => {
    const { adminKey } = cluster.masters;
    const wrongKey = `${adminKey.slice(0, -1)}${adminKey.endsWith("x") ? "y" : "x"}`;
    expect((await heddle(["--api-key", wrongKey, "jobs", "list"])).code).toBe(4);
    await heddle(["queues", "set", "full", "--max-length", "0"]);
    const over = await heddle([
      "jobs",
      "submit",
      "--name",
      "x",
      "--command",
      "true",
      "--queue",
      "full",
    ]);
    expect(over).toMatchObject({ code: 6, stderr: /full holds 0 jobs.*bound is 0/ });
    const unreachable = await heddle(["--endpoint", "http://127.0.0.1:9", "jobs", "list"]);
    expect(unreachable).toMatchObject({ code: 7, stdout: "" });
    expect((await heddle(["jobs", "list", "--bogus"])).code).toBe(2);
    expect((await heddle(["jobs", "list", "-o", "xml"])).code).toBe(2);
  });

  it.each(["jobs", "workers", "queues", "projects"])(
    "list %s as a table, a wide one, JSON, YAML and names",
    async (noun) => {
      const formats = ["json", "table", "wide", "name", "yaml"];
      const [json = "", table = "", ...others] = await Promise.all(
        formats.map(async (format) => (await heddle([noun, "list", "-o", format])).stdout),
      );
      const [wide = "", names = "", yaml = ""] = others;
      const records = JSON.parse(json) as Record<string, unknown>[];
      expect(records.length).toBeGreaterThan(0);
      const lines = (text: string) => text.trimEnd().split("\n");
      const [head = "", ...rows] = lines(table);
      expect(head).toMatch(/^[A-Z]/);
      expect(rows).toHaveLength(records.length);
      expect(lines(wide)).toHaveLength(records.length + 1);
      expect(lines(names)).toHaveLength(records.length);
      expect(yaml).toMatch(/^- \w+: /);
    },
  );
});

describe("the examples", () => {
  it("are those that the documents name", () => {
    const documents = ["README.md", "docs/guide/jobs.md"].map((name) =>
      readFileSync(join(EXAMPLES, "..", name), "utf8"),
    );
    for (const name of ["hello.yaml", "gang.yaml"]) {
      expect(documents.join("\n")).toContain(`examples/${name}`);
    }
  });
});
