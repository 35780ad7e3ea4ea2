// holds: start-table

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ProcessKind } from "@heddle/base/process/young-generation";
import { isProcessAlive } from "@heddle/base/process-alive";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { allGone } from "../testing/driven-process.ts";
import { describeLogLine } from "./log-line.ts";
import { type ProcessSpec, SupervisedProcess } from "./supervised-process.ts";
import { Supervisor } from "./supervisor.ts";

const WORKER = fileURLToPath(new URL("../testing/scripted-worker.ts", import.meta.url));
const LIMITS = { baseMs: 20, maxMs: 40, maxCrashes: 3, windowMs: 60_000 };
const data = mkdtempSync(join(tmpdir(), "heddle-supervised-"));
const cleanUps: (() => void)[] = [];
afterEach(() => {
  for (const cleanUp of cleanUps.splice(0).reverse()) cleanUp();
});
afterAll(() => rmSync(data, { recursive: true, force: true }));

function spec(name: string, script: string, kind: ProcessKind = "worker"): ProcessSpec {
  const env = { PATH: process.env["PATH"], SCRIPT: script };
  return { name, kind, command: [process.execPath, WORKER, "--data", data], env };
}

class Recorder {
  readonly lines: string[] = [];
  line(of: ProcessSpec, line: Parameters<typeof describeLogLine>[0]): void {
    this.lines.push(`${of.name}: ${describeLogLine(line)}`);
  }
  restarting(of: ProcessSpec, why: string): void {
    this.lines.push(`${of.name} restarts: ${why}`);
  }
  left(of: ProcessSpec, why: string): void {
    this.lines.push(`${of.name}: left: ${why}`);
  }
  gaveUp(of: ProcessSpec, why: string): void {
    this.lines.push(`${of.name} gave up: ${why}`);
  }
}

function supervise(script: string, recorder = new Recorder()): SupervisedProcess {
  const supervised = new SupervisedProcess(spec("w", script), recorder, LIMITS);
  cleanUps.push(() => supervised.kill());
  supervised.start();
  return supervised;
}

describe("supervisor of a group of masters", () => {
  const command = [process.execPath, "-e", "process.exit(3)"] as const;
  const broken = (name: string) => ({ ...spec(name, "", "master"), command });

  it("starts without a minority of them, and knows which masters are left", async () => {
    const specs = [broken("m1"), spec("m2", "", "master"), spec("m3", "", "master"), spec("w", "")];
    const supervisor = new Supervisor(specs, new Recorder(), LIMITS);
    cleanUps.push(() => supervisor.kill());
    await supervisor.start();
    expect(supervisor.mastersLeft).toEqual(["m2", "m3"]);
    await supervisor.stop();
  });

  it("does not start without a majority", async () => {
    const specs = [broken("m1"), broken("m2"), spec("m3", "", "master")];
    const supervisor = new Supervisor(specs, new Recorder(), LIMITS);
    cleanUps.push(() => supervisor.kill());
    await expect(supervisor.start()).rejects.toThrow(/m[12] does not start: .*3 crashes/);
    await supervisor.stop();
  });
});

describe("supervised process", () => {
  it("is ready when it logs so, and exits at SIGTERM", async () => {
    const recorder = new Recorder();
    const supervised = supervise("", recorder);
    await supervised.ready;
    const pid = supervised.pid ?? 0;
    await supervised.stop(60_000);
    expect(isProcessAlive(pid)).toBe(false);
    expect(recorder.lines).toEqual(["w: ready", "w: asked to stop"]);
  });

  it("restarts after a crash, and reports its cause", async () => {
    const recorder = new Recorder();
    const supervised = supervise("crash-once", recorder);
    await supervised.ready;
    await supervised.stop(60_000);
    expect(recorder.lines).toContain(
      "w restarts: it exited with code 3; it last said: about to crash",
    );
  });

  it("stays down after too many crashes, which is reported once", async () => {
    const recorder = new Recorder();
    const broken: ProcessSpec = { ...spec("w", ""), command: [process.execPath, "/no/such/file"] };
    const supervised = new SupervisedProcess(broken, recorder, LIMITS);
    supervised.start();
    await expect(supervised.ready).rejects.toThrow(
      /w does not start: it exited with code 1; it last said: Error: Cannot find module .*3 crashes/,
    );
    expect(recorder.lines.filter((line) => line.includes("gave up"))).toHaveLength(1);
    expect(recorder.lines.filter((line) => line.includes("restarts"))).toHaveLength(2);
  });

  it("a program that does not exist is reported", async () => {
    const broken: ProcessSpec = { ...spec("w", ""), command: ["/no/such/program"] };
    const supervised = new SupervisedProcess(broken, new Recorder(), LIMITS);
    supervised.start();
    await expect(supervised.ready).rejects.toThrow(/could not be started.*ENOENT/);
  });

  it("is killed if it does not exit within the grace", async () => {
    const supervised = supervise("stubborn");
    await supervised.ready;
    const pid = supervised.pid ?? 0;
    await supervised.stop(100);
    expect(isProcessAlive(pid)).toBe(false);
  });

  it("is killed with its child processes", async () => {
    const recorder = new Recorder();
    const supervised = supervise("grandchild", recorder);
    await supervised.ready;
    const grandchild = Number(/grandchild=(\d+)/.exec(recorder.lines.join())?.[1]);
    expect(isProcessAlive(grandchild)).toBe(true);
    await supervised.stop(60_000);
    await allGone([grandchild]);
  });

  it("is not restarted when it has left the cluster, and is no longer awaited", async () => {
    const recorder = new Recorder();
    const leaves = 'console.log(JSON.stringify({level:50,msg:"it was removed"})); process.exit(8)';
    const command = [process.execPath, "-e", leaves] as const;
    const supervised = new SupervisedProcess({ ...spec("m", ""), command }, recorder, LIMITS);
    supervised.start();
    await supervised.ready;
    expect(supervised.pid).toBeUndefined();
    expect(recorder.lines.filter((line) => line.startsWith("m: left"))).toEqual([
      "m: left: it was removed",
    ]);
    expect(recorder.lines.join()).not.toMatch(/restarts|gave up/);
  });

  it("is not restarted if it was stopped between two crashes", async () => {
    const recorder = new Recorder();
    const slow = { ...LIMITS, baseMs: 60_000, maxMs: 60_000 };
    const broken: ProcessSpec = { ...spec("w", ""), command: [process.execPath, "-e", "throw 1"] };
    const supervised = new SupervisedProcess(broken, recorder, slow);
    supervised.start();
    while (recorder.lines.every((line) => !line.includes("restarts"))) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await supervised.stop(100);
    expect(supervised.pid).toBeUndefined();
  });
});

describe("supervisor", () => {
  it("ends masters first, then workers, then parameter servers", async () => {
    const recorder = new Recorder();
    const specs = [
      spec("m", "", "master"),
      spec("p", "", "parameter-server"),
      spec("w", "", "worker"),
    ];
    const supervisor = new Supervisor(specs, recorder, LIMITS);
    cleanUps.push(() => supervisor.kill());
    await supervisor.start();
    await supervisor.stop();
    const stops = recorder.lines.filter((line) => line.includes("asked to stop"));
    expect(stops).toEqual(["m: asked to stop", "w: asked to stop", "p: asked to stop"]);
  });
});
