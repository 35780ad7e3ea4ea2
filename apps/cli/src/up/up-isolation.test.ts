import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// What a job reaches of a whole cluster of `heddle up`: no file and no process of it, at each level of
// isolation that this machine has.

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const MAIN = fileURLToPath(new URL("../../dist/main.js", import.meta.url));
const isRoot = process.getuid?.() === 0;

/** For each file of the list, and each process: what a task can read, write or signal of it. */
const INTRUDER = `
const fs = require("node:fs");
const [files, pids] = [process.env.FILES.split("\\n"), process.env.PIDS.split(",")];
const can = (what, act) => { try { act(); console.log("REACHED " + what); } catch {} };
for (const file of files) {
  can("read " + file, () => fs.readFileSync(file));
  can("write " + file, () => fs.closeSync(fs.openSync(file, "r+")));
  can("remove " + file, () => fs.rmSync(file));
}
for (const pid of pids) {
  for (const name of ["environ", "maps", "mem", "auxv", "io"]) {
    can(name + " of " + pid, () => {
      const fd = fs.openSync("/proc/" + pid + "/" + name);
      if (name === "mem") throw fs.readSync(fd, Buffer.alloc(1), 0, 1, 0x400000);
      fs.readSync(fd, Buffer.alloc(1));
    });
  }
  can("descriptors of " + pid, () => fs.readlinkSync("/proc/" + pid + "/fd/0"));
  can("root of " + pid, () => fs.readdirSync("/proc/" + pid + "/root/"));
  can("signal to " + pid, () => process.kill(Number(pid), 0));
}
can("inherited descriptors", () => {
  const open = fs.readdirSync("/proc/self/fd").filter((fd) => {
    try { return Number(fd) > 2 && /heddle|socket|\\.json/.test(fs.readlinkSync("/proc/self/fd/" + fd)) }
    catch { return false; }
  });
  if (open.length === 0) throw new Error("none");
});
for (const name of Object.keys(process.env)) {
  if (/TOKEN|SECRET|API_KEY/.test(name)) console.log("REACHED variable " + name);
}
const status = fs.readFileSync("/proc/self/status", "utf8").split("\\n");
const field = (name) => status.find((line) => line.startsWith(name + ":"))?.split(":")[1].trim();
if (field("NoNewPrivs") !== "1") console.log("REACHED programs that change their user");
if (process.env.LEVEL.startsWith("own user")) {
  for (const set of ["CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
    if (/[^0]/.test(field(set))) console.log("REACHED capabilities " + set + " " + field(set));
  }
  if (field("Groups") !== "") console.log("REACHED groups " + field("Groups"));
}
console.log("searched " + files.length + " files and " + pids.length + " processes");
`;

describe.each([
  { flags: [], level: isRoot ? "own user, mounts and processes" : "Landlock" },
  ...(isRoot ? [{ flags: ["--task-users", "own"], level: "Landlock" }] : []),
])("with $level", ({ flags, level }) => {
  const scratch = mkdtempSync(join(tmpdir(), "heddle-up-isolation-"));
  // Only the data directory itself keeps others out.
  chmodSync(scratch, 0o755);
  const data = join(scratch, "data");
  let cluster: DrivenProcess;
  let port = 0;

  beforeAll(async () => {
    port = await freePort();
    const place = ["--data", data, "--port", String(port), "--profile", "tiny"];
    const nodes = ["--workers", "1", "--parameter-servers", "1", ...flags];
    const command = [process.execPath, MAIN, "up", ...place, ...nodes] as const;
    cluster = new DrivenProcess(command, { HEDDLE_DRAIN_MS: "300", MY_SECRET: "of-the-caller" });
    await cluster.printed(/Ctrl-C stops everything/);
  });
  afterAll(async () => {
    cluster.child.kill("SIGINT");
    await cluster.end();
    rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  });

  async function call(method: string, path: string, body?: object): Promise<Response> {
    const key = readFileSync(join(data, "bootstrap-key"), "utf8").trim();
    return fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
  }

  test("a task reaches no file and no process of the cluster", async (context) => {
    const workers = (await (await call("GET", "/workers")).json()) as {
      data: { kind: string; task_isolation: string | null }[];
    };
    const told = workers.data.find(({ kind }) => kind === "worker")?.task_isolation;
    if (told === "none") return context.skip("this machine isolates no tasks");
    expect(told).toBe(level);
    const files = filesBelow(data);
    const secrets = ["bootstrap-key", "cluster-token", "credentials.json", "worker-1/lease.json"];
    for (const name of secrets) expect(files).toContain(join(data, name));
    const pids = processesOf(cluster.child.pid ?? 0);
    expect(pids.length).toBeGreaterThanOrEqual(4);
    const reply = await call("POST", "/jobs", {
      name: "intruder",
      command: [process.execPath, "-e", INTRUDER],
      environment_variables: { FILES: files.join("\n"), PIDS: pids.join(","), LEVEL: level },
      resources: { cpu_cores: 0.2, memory_gb: 0.5 },
    });
    expect(reply.status, await reply.clone().text()).toBe(202);
    const { job_id: id } = (await reply.json()) as { job_id: string };
    await vi.waitFor(
      async () => {
        const log = await (await call("GET", `/jobs/${id}/logs?attempt=all`)).text();
        expect(log).toMatch(/searched \d+ files/);
        expect(log.split("\n").filter((line) => line.includes("REACHED"))).toEqual([]);
      },
      { timeout: 60_000, interval: 200 },
    );
    expect(filesBelow(data)).toEqual(
      expect.arrayContaining(secrets.map((name) => join(data, name))),
    );
  });
});

/** Every file of the cluster but those of jobs and weights. */
function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isFile()) return [path];
    const isOthers = /^(jobs|checkpoints|models)$/.test(entry.name);
    return entry.isDirectory() && !isOthers ? filesBelow(path) : [];
  });
}

/** The process and all that descend from it. */
function processesOf(root: number): number[] {
  const parents = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "latin1");
        return [
          [Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1])] as const,
        ];
      } catch {
        return [];
      }
    });
  const found = new Set([root]);
  for (let grew = true; grew; ) {
    grew = false;
    for (const [pid, parent] of parents) {
      if (!found.has(parent) || found.has(pid)) continue;
      found.add(pid);
      grew = true;
    }
  }
  return [...found];
}
