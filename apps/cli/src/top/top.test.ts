// holds: cli-top

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { terminal as terminalOf } from "../output/terminal.ts";
import { DrivenProcess } from "../testing/driven-process.ts";
import { type TopReading, topText } from "./top-view.ts";

// `heddle top` with a cluster, without a terminal and in one that `script` of util-linux makes.

const MAIN = programOf("cli");
const HAS_SCRIPT = /util-linux/.test(
  spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "",
);
if (!HAS_SCRIPT) console.log("skipped: the test in a terminal needs `script` of util-linux");
const scratch = mkdtempSync(join(tmpdir(), "heddle-top-"));
const data = join(scratch, "data");
let cluster: DrivenProcess;
let terminal: ChildProcess | undefined;

beforeAll(async () => {
  const place = ["--data", data, "--port", String(await freePort())];
  const offers = ["--profile", "tiny", "--simulate-gpus", "2xH100-80GB"];
  cluster = new DrivenProcess(
    [process.execPath, MAIN, "up", ...place, ...offers, "--parameter-servers", "0"],
    { HEDDLE_DRAIN_MS: "300" },
  );
  await cluster.printed(/Ctrl-C stops everything/);
  await ended("jobs", "submit", "--name", "sleeper", "--command", "sleep 600");
});
afterAll(async () => {
  terminal?.kill("SIGKILL");
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

function heddle(...args: string[]): DrivenProcess {
  return new DrivenProcess([process.execPath, MAIN, ...args], { HEDDLE_DATA: data });
}

async function ended(...args: string[]): Promise<string> {
  const driven = heddle(...args);
  expect(await driven.end(), driven.stderr).toBe(0);
  return driven.stdout;
}

describe("heddle top", () => {
  it("--once: nodes, GPUs, jobs and replicas as plain text", async () => {
    let text = "";
    await eventually(async () => {
      text = await ended("top", "--once");
      // Counts and jobs are read one after the other.
      return /sleeper +running/.test(text) && /^jobs: 1 running$/m.test(text);
    });
    expect(text).toMatch(/leader master-1, term \d+\n1 workers {2}\d\/2 GPUs used/);
    expect(text).toMatch(/^worker-1 +worker +ready/m);
    expect(text).toMatch(/^worker-1\/1 +H100 \(simulated\)/m);
    expect(text).toMatch(/^tiny-random +worker-1 +ready/m);
    expect(text).not.toContain("\x1b");
  });

  it("--once -o json: one record with the parts", async () => {
    const reading = JSON.parse(await ended("top", "--once", "-o", "json"));
    expect(Object.keys(reading)).toEqual(["at", "metrics", "workers", "jobs", "more_jobs"]);
    expect(reading.jobs).toMatchObject([{ name: "sleeper" }]);
  });

  it("a screen of 24 lines: shows a part of each list, and how many are left out", async () => {
    const reading = JSON.parse(await ended("top", "--once", "-o", "json")) as TopReading;
    const [worker] = reading.workers;
    const gpus = Array.from({ length: 32 }, (_, index) => ({ ...worker!.gpus[0]!, index }));
    const many = { ...reading, workers: [{ ...worker!, gpus }] };
    const text = topText(many, terminalOf(process.stdout), 24);
    expect(text.trimEnd().split("\n")).toHaveLength(24);
    expect(text).toMatch(/^worker-1\/8 .*\n\.\.\. 23 more$/m);
    expect(text).toMatch(/^tiny-random /m);
    expect(text).toContain("sleeper");
    expect(topText(many, terminalOf(process.stdout))).toMatch(/^worker-1\/31 /m);
  });

  it("without a terminal: a block at each interval, until Ctrl-C", async () => {
    const driven = heddle("top", "--interval", "0.5");
    await driven.printed(/leader [\s\S]*leader [\s\S]*leader /);
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(130);
    expect(driven.stdout).not.toContain("\x1b");
  });

  it.runIf(HAS_SCRIPT)("in a terminal: redraws one screen, and q ends it with 0", async () => {
    const command = `stty rows 12 cols 40; "${process.execPath}" "${MAIN}" top --interval 0.5; echo "code=$?"`;
    const env = { ...process.env, TERM: "xterm", HEDDLE_DATA: data };
    const child = spawn("script", ["-qec", command, "/dev/null"], { env });
    terminal = child;
    let output = "";
    child.stdout.on("data", (piece) => {
      output += piece;
    });
    await eventually(
      () => output.split("\x1b[H").length > 3,
      () => output,
    );
    child.stdin.write("q");
    await once(child, "close");
    expect(output).toMatch(/code=0\s*$/);
    expect(output).toContain("\x1b[?25h\x1b[?1049l");
    const [screen = ""] = output.split("\x1b[H").slice(2);
    const lines = screen
      .split("\x1b[J")[0]!
      .split("\r\n")
      .map((line) => line.replace("\x1b[K", ""));
    expect(lines).toHaveLength(12);
    expect(lines.at(-1)).toBe("...");
    for (const line of lines) expect(stripVTControlCharacters(line).length).toBeLessThan(41);
  });

  it("a wrong interval: is refused with exit code 2", async () => {
    for (const interval of ["0", "x", "99999"]) {
      const driven = heddle("top", "--interval", interval);
      expect(await driven.end()).toBe(2);
      expect(driven.stderr).toContain("give seconds from 0.5 to 3600");
    }
  });
});
