// holds: task-isolation, sec-secret-paths

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { createApiKey } from "@heddle/auth/api-key";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf, startArguments } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// A job reaches no file and no process of a cluster of `heddle up`, at each isolation level of this
// machine. The same holds for processes that the same user has started by hand.

const MAIN = programOf("cli");
const isRoot = process.getuid?.() === 0;
/** A user without an entry in the password database, as in containers. */
const plainUser = 1_913_000_001;

/** For each file of the list, and each process: whether a task can read, write or signal it. */
const INTRUDER = `
const fs = require("node:fs");
const { dirname } = require("node:path");
const [files, pids] = [process.env.FILES.split("\\n"), process.env.PIDS.split(",")];
const can = (what, act) => { try { act(); console.log("REACHED " + what); } catch {} };
for (const file of files) {
  const isSecret = !file.endsWith("/notes");
  if (isSecret) can("read " + file, () => fs.readFileSync(file));
  can("write " + file, () => fs.closeSync(fs.openSync(file, "r+")));
  for (const path of [file, dirname(file)]) {
    can("mode of " + path, () => fs.chmodSync(path, 0o755));
    can("group of " + path, () => fs.chownSync(path, process.getuid(), process.getgid()));
    can("times of " + path, () => fs.utimesSync(path, 1, 1));
  }
  can("remove " + file, () => fs.rmSync(file));
}
const above = new Set();
for (const file of files) for (let at = dirname(file); at !== dirname(at); at = dirname(at)) above.add(at);
for (const folder of above) {
  can("place of " + folder, () => fs.renameSync(folder, folder + "-moved"));
  can("place of empty " + folder, () => fs.rmdirSync(folder));
  can("new file in " + folder, () => {
    if (folder !== "/tmp") fs.writeFileSync(folder + "/planted", "");
    else throw new Error("all may write there");
  });
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
  can("priority of " + pid, () => require("node:os").setPriority(Number(pid), 10));
  can("scheduling of " + pid, () => {
    const idle = ["--idle", "--pid", "0", pid];
    if (require("node:child_process").spawnSync("chrt", idle).status !== 0) throw new Error();
  });
  can("limits of " + pid, () => {
    const limit = ["--pid", pid, "--nofile=4096:4096"];
    if (require("node:child_process").spawnSync("prlimit", limit).status !== 0) throw new Error();
  });
}
can("inherited descriptors", () => {
  const open = fs.readdirSync("/proc/self/fd").filter((fd) => {
    try { return Number(fd) > 2 && /heddle|socket|\\.json/.test(fs.readlinkSync("/proc/self/fd/" + fd)) }
    catch { return false; }
  });
  if (open.length === 0) throw new Error("none");
});
fs.writeFileSync("mine", "");
fs.chmodSync("mine", 0o755);
const { HEDDLE_JOB_ID: job } = process.env;
fs.writeFileSync("/tmp/" + job, "");
fs.rmSync("/tmp/" + job);
require("node:os").setPriority(0, 5); // Its own it may lower.
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
  { user: undefined, level: isRoot ? "own user, mounts and processes" : "Landlock and own mounts" },
  ...(isRoot ? [{ user: plainUser, level: "Landlock and own mounts" }] : []),
])("isolation at the level $level", ({ user, level }) => {
  const scratch = mkdtempSync(join(tmpdir(), "heddle-up-isolation-"));
  const data = join(scratch, "data");
  // Not in a temporary folder, to which every task writes.
  const elsewhere = mkdtempSync(join(isRoot ? "/var/lib" : homedir(), "heddle-up-isolation-"));
  /** Paths of the processes that are started by hand, each given by a flag. */
  const given = {
    token: join(elsewhere, "token-of-nodes"),
    foreignToken: join(elsewhere, "foreign-token"),
    foreignKey: join(elsewhere, "foreign-key"),
    secretsKey: join(elsewhere, "foreign-secrets-key"),
  };
  const running: DrivenProcess[] = [];
  let port = 0;

  const start = async (command: readonly string[], ready: RegExp) => {
    const environment = { HEDDLE_DRAIN_MS: "300", MY_SECRET: "of-the-caller", HOME: scratch };
    const started = new DrivenProcess([process.execPath, ...command], environment, user);
    running.push(started);
    await started.printed(ready);
    return started;
  };

  beforeAll(async () => {
    // Only the data directory itself keeps other users out.
    chmodSync(scratch, 0o755);
    if (user !== undefined) chownSync(scratch, user, user);
    if (!mayRun(user)) return;
    port = await freePort();
    const nodes = ["--workers", "1", "--parameter-servers", "1"];
    const place = ["--data", data, "--port", String(port), "--profile", "tiny"];
    await start([MAIN, "up", ...place, ...nodes], /Ctrl-C stops everything/);
    await startByHand();
  });
  afterAll(async () => {
    for (const { child } of running) child.kill("SIGINT");
    await Promise.all(running.map((each) => each.end()));
    for (const folder of [scratch, elsewhere])
      rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  });

  /** A worker and a parameter server of the cluster, and a master of another one. */
  async function startByHand(): Promise<void> {
    writeFileSync(given.token, readFileSync(join(data, "cluster-token")));
    writeFileSync(given.foreignToken, `${"t".repeat(43)}\n`);
    writeFileSync(given.foreignKey, `${createApiKey("local").text}\n`);
    writeFileSync(given.secretsKey, `${Buffer.alloc(32, 7).toString("base64")}\n`);
    const notes = join(elsewhere, "notes");
    writeFileSync(notes, "no secret");
    for (const path of [elsewhere, notes, ...Object.values(given)]) {
      chmodSync(path, path === elsewhere ? 0o755 : 0o600);
      if (user !== undefined) chownSync(path, user, user);
    }
    const masters = ["--masters", `127.0.0.1:${grpcPort()}`, "--cluster-token-file", given.token];
    const dataOf = (name: string) => ["--data", join(elsewhere, name), "--name", name];
    await Promise.all([
      start([...startArguments("worker"), ...dataOf("worker-by-hand"), ...masters], /"ready"/),
      start(
        [...startArguments("parameter-server"), ...dataOf("server-by-hand"), ...masters],
        /"ready"/,
      ),
      start(
        [
          ...startArguments("master"),
          ...dataOf("foreign"),
          "--http-port",
          "0",
          "--grpc-port",
          "0",
          "--cluster-token-file",
          given.foreignToken,
          "--secrets-key-file",
          given.secretsKey,
          "--bootstrap-key-file",
          given.foreignKey,
        ],
        /"ready"/,
      ),
    ]);
  }

  function grpcPort(): string {
    const commands = processesOf(running[0]?.child.pid ?? 0).map((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0"),
    );
    const master = commands.find((command) => command.includes("--bootstrap-key-file")) ?? [];
    return master[master.indexOf("--grpc-port") + 1] ?? "";
  }

  async function call(method: string, path: string, body?: object): Promise<Response> {
    const key = readFileSync(join(data, "bootstrap-key"), "utf8").trim();
    return fetch(`http://127.0.0.1:${port}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
  }

  test.each(["worker-1", "worker-by-hand"])(
    "isolation: a task of %s reaches no secret file and no process",
    async (worker) => {
      if (!mayRun(user)) return console.warn(`skipped: user ${user} cannot read this checkout`);
      const workers = (await (await call("GET", "/workers")).json()) as {
        data: { kind: string; name: string; task_isolation: string | null }[];
      };
      const found = workers.data.filter(({ kind }) => kind === "worker");
      expect(found.map(({ task_isolation }) => task_isolation)).toEqual([level, level]);
      const files = [...filesBelow(data), ...filesBelow(elsewhere)];
      const named = ["bootstrap-key", "cluster-token", "credentials.json", "worker-1/lease.json"];
      const secrets = [...named.map((name) => join(data, name)), ...Object.values(given)];
      const kept = [
        "worker-by-hand/node-id",
        "server-by-hand/node-id",
        "foreign/control/identity.json",
      ];
      secrets.push(...kept.map((name) => join(elsewhere, name)));
      expect(files).toEqual(expect.arrayContaining(secrets));
      const pids = running.flatMap(({ child }) => processesOf(child.pid ?? 0));
      expect(pids.length).toBeGreaterThanOrEqual(7);
      const reply = await call("POST", "/jobs", {
        name: `intruder-${worker}`,
        command: [process.execPath, "-e", INTRUDER],
        environment_variables: { FILES: files.join("\n"), PIDS: pids.join(","), LEVEL: level },
        resources: { cpu_cores: 0.2, memory_gb: 0.5, node_affinity: { name: worker } },
      });
      expect(reply.status, await reply.clone().text()).toBe(202);
      const { job_id: id } = (await reply.json()) as { job_id: string };
      await vi.waitFor(
        async () => {
          const log = await (await call("GET", `/jobs/${id}/logs?attempt=all`)).text();
          expect(log).toMatch(/searched \d+ files/);
          expect(log.split("\n").filter((line) => line.includes("REACHED"))).toEqual([]);
        },
        { timeout: 100_000, interval: 200 },
      );
      expect([...filesBelow(data), ...filesBelow(elsewhere)]).toEqual(
        expect.arrayContaining(secrets),
      );
    },
  );
});

/** Whether the user can read this checkout, which may be in another user's home. */
function mayRun(user: number | undefined): boolean {
  if (user === undefined) return true;
  const read = [process.execPath, "-e", "require('fs').accessSync(process.argv[1])", MAIN];
  const [program = "", ...args] = read;
  return spawnSync(program, args, { uid: user, gid: user, cwd: "/" }).status === 0;
}

/** Every file of the cluster except those of jobs and weights. */
function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isFile()) return [path];
    const isOthers = /^(jobs|checkpoints|models)$/.test(entry.name);
    return entry.isDirectory() && !isOthers ? filesBelow(path) : [];
  });
}

/** The process and all its descendants. */
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
