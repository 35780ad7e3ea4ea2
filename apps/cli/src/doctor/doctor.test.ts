// holds: cli-doctor

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort, freePorts } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";
import type { Finding } from "./finding.ts";

// `heddle doctor` as a program, with a cluster of three masters and TLS between its processes.

const MAIN = programOf("cli");
const scratch = mkdtempSync(join(tmpdir(), "heddle-doctor-test-"));
const data = join(scratch, "data");
const [MASTERS, FAULT] = [3, "memory errors"];
let port: number;
let cluster: DrivenProcess;
const pids: number[] = [];

beforeAll(async () => {
  port = await freePorts([0, 1, 2, 1_000, 1_001, 1_002]);
  const flags = ["--tls", "--masters", String(MASTERS), "--parameter-servers", "0"];
  const place = ["--data", data, "--port", String(port), "--models-cache", join(scratch, "cache")];
  const offers = ["--profile", "tiny", "--simulate-gpus", "2xH100-80GB"];
  cluster = new DrivenProcess([process.execPath, MAIN, "up", ...flags, ...place, ...offers], {
    HEDDLE_DRAIN_MS: "300",
  });
  await cluster.printed(/Ctrl-C stops everything/);
});
afterAll(async () => {
  for (const pid of pids) process.kill(pid, "SIGCONT");
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

async function doctor(folder: string, ...args: string[]) {
  const command = [process.execPath, MAIN, "doctor", "--data", folder, ...args] as const;
  const driven = new DrivenProcess([...command]);
  const code = await driven.end();
  return { code, stdout: driven.stdout, stderr: driven.stderr };
}

async function findings(folder: string, ...args: string[]) {
  const { code, stdout, stderr } = await doctor(folder, "--json", ...args);
  const all = JSON.parse(stdout) as Finding[];
  const of = (check: string, where = "") =>
    all.filter((finding) => finding.check === check && finding.where.includes(where));
  return { code, all, of, stderr };
}

describe("heddle doctor", () => {
  it("without a cluster: the machine is checked, and nothing is made", async () => {
    const folder = join(scratch, "none");
    const free = String(await freePort());
    const { all, of, stderr } = await findings(folder, "--port", free);
    expect(all.map(({ check }) => check)).toEqual([
      "node-version",
      "memory",
      "open-files",
      "temporary-folder",
      "data-directory",
      "disk",
      "port",
      "gpu",
      "isolation",
      "reachable",
    ]);
    expect(of("port")[0]).toMatchObject({ status: "ok", where: `127.0.0.1:${free}` });
    expect(of("isolation")[0]?.what).toMatch(/own user|Landlock|secrets/);
    expect(of("reachable")[0]).toMatchObject({ status: "skipped", fix: null });
    expect(of("data-directory")[0]?.what).toContain("heddle up makes it");
    expect(stderr).toMatch(/^10 checks: \d errors, \d warnings, 1 skipped\n$/);
  });

  it("a sound cluster: masters, clocks, certificates, nodes and models are ok", async () => {
    const { all, of } = await findings(data);
    const checks = [
      "reachable",
      "clock",
      "version",
      "key",
      "leader",
      "node",
      "model",
      "replication",
    ];
    for (const check of [...checks, "certificate", "credentials"]) {
      expect(of(check), check).not.toEqual([]);
      expect(of(check).filter(({ status }) => status !== "ok")).toEqual([]);
    }
    expect(all.filter(({ check }) => check === "reachable")).toHaveLength(MASTERS);
    expect(of("certificate", "master-2")).toHaveLength(2);
    expect(of("certificate", "cluster-ca.pem")).toHaveLength(1);
    expect(of("node", "worker-1")).toHaveLength(1);
    expect(of("port")[0]?.what).toContain(`process ${cluster.child.pid}`);
  });

  it("a wrong key: an error with its remedy, and exit code 1", async () => {
    const { code, of } = await findings(data, "--api-key", "wrong");
    expect(code).toBe(1);
    expect(of("key")[0]).toMatchObject({ status: "error" });
    expect(of("key")[0]?.fix).toContain("--api-key");
  });

  it("a named address without a master: exit code 1, in text with the remedy", async () => {
    const closed = `http://127.0.0.1:${await freePort()}`;
    const { code, stdout } = await doctor(data, "--endpoint", closed);
    expect(code).toBe(1);
    expect(stdout).toContain(`error    reachable  ${closed}: no answer (ECONNREFUSED)\n`);
    expect(stdout).toContain("         fix Start the master there (`heddle up`)");
  });

  it("an unhealthy GPU and a stopped master: both are named, the others still answer", async () => {
    writeFileSync(join(data, "worker-1", "gpu-faults"), `1 ${FAULT}\n`);
    const stopped = pidOf("master-2");
    pids.push(stopped);
    process.kill(stopped, "SIGSTOP");
    let found!: Awaited<ReturnType<typeof findings>>;
    await eventually(async () => {
      found = await findings(data);
      return found.of("leader")[0]?.status === "warning" && found.of("gpu", "worker-1").length > 0;
    });
    expect(found.code).toBe(1);
    const dead = found.of("reachable", `:${port + 1}`)[0];
    expect(dead).toMatchObject({ status: "error" });
    expect(found.of("leader")[0]?.what).toContain("2 of 3 voters are reachable");
    expect(found.of("gpu", "worker-1")[0]).toMatchObject({
      status: "warning",
      what: `GPU 1: ${FAULT}`,
    });
  });

  it("wrong numbers: are refused with exit code 2", async () => {
    for (const flags of [
      ["--port", "0"],
      ["--masters", "x"],
      ["--port", "65535", "--masters", "3"],
    ]) {
      const { code, stdout, stderr } = await doctor(data, ...flags);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toContain("give a whole number from 1 to");
    }
  });
});

/** Found by its data directory in its command line. */
function pidOf(name: string): number {
  const table = execFileSync("ps", ["-eo", "pid=,args="], { encoding: "utf8" });
  const line = table.split("\n").find((each) => each.includes(`--data ${join(data, name)} `));
  return Number(line?.trim().split(" ")[0]);
}
