import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort, freePorts } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { allGone, DrivenProcess } from "../testing/driven-process.ts";

// `heddle up` as a real process with real child processes that have the apps' command lines.

const DRIVER = fileURLToPath(new URL("../testing/up-driver.ts", import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), "heddle-up-"));
const started: DrivenProcess[] = [];
let directories = 0;

afterEach(() => {
  for (const { child } of started.splice(0)) child.kill("SIGKILL");
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

async function up(flags: object, env: NodeJS.ProcessEnv = {}) {
  const data = join(scratch, `data-${++directories}`);
  const port = await freePort();
  const defaults = {
    masters: "1",
    workers: "1",
    parameterServers: "0",
    port: String(port),
    data,
    profile: "demo",
    logLevel: "warn",
  };
  const all = { ...defaults, ...flags };
  const driven = new DrivenProcess([process.execPath, DRIVER, JSON.stringify(all)], env);
  started.push(driven);
  return { driven, data: all.data, port: Number(all.port) };
}

/** The ids of the cluster's processes, from the log lines that --verbose shows. */
async function childPids(parent: number): Promise<number[]> {
  const text = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8");
  return text.trim().split(/\s+/).filter(Boolean).map(Number);
}

/** Runs each of the three commands that a started cluster shows. */
async function pasteCommands(driven: DrivenProcess) {
  await driven.printed(/Ctrl-C stops everything/);
  const commands = driven.stdout.split("\n").filter((line) => /^ {2}(curl|\(cd) /.test(line));
  expect(commands).toHaveLength(3);
  const pasted = [];
  for (const command of commands) {
    const run = new DrivenProcess(["sh", "-c", command]);
    expect(await run.end(), `${command}\n${run.stderr}`).toBe(0);
    pasted.push({ command, stdout: run.stdout });
  }
  return pasted;
}

describe("heddle up", () => {
  // holds: start-table
  it("shows the pull, an answer and the next commands; --once then exits with 0", async () => {
    const { driven, data, port } = await up({ once: true, workers: "2", parameterServers: "1" });
    expect(await driven.end()).toBe(0);
    // The load is reported even if no poll saw it.
    expect(driven.stderr).toMatch(
      /pulling scripted.gguf 50 %(.*\n)*loading the model FamilyA-1-2B \.\.\.\n/,
    );
    expect(driven.stderr).toMatch(/7 tokens in .* first token after/);
    expect(driven.stdout).toContain("It lifts the warp.");
    expect(driven.stdout).toContain(`http://127.0.0.1:${port}/api/v1`);
    expect(driven.stdout).toContain("The self-check passed");
    expect(driven.stdout).toContain("Omit --once to keep it running");
    expect(driven.stdout).not.toMatch(/Heddle is up|Try it|chat\/completions/);
    expect(driven.stdout).toContain("1 master, 2 workers, 1 parameter server");
    expect(driven.stdout).toMatch(
      /FamilyA-1-2B\n +scripted model of the demo profile \(a stand-in\)/,
    );
    expect(existsSync(join(data, "lock"))).toBe(false);
  });

  // holds: start-table
  it("shows the key at the first start only, and stores it readable by its owner", async () => {
    const first = await up({ once: true });
    await first.driven.end();
    const key = /hdl_local_\w+/.exec(first.driven.stdout)?.[0] ?? "no key was shown";
    const again = await up({ once: true, data: first.data });
    expect(await again.driven.end()).toBe(0);
    expect(again.driven.stdout).not.toContain(key);
    expect(again.driven.stdout).toContain("bootstrap-key");
    const file = join(first.data, "credentials.json");
    expect(JSON.parse(readFileSync(file, "utf8"))).toEqual({
      endpoint: `http://127.0.0.1:${again.port}`,
      endpoints: [`http://127.0.0.1:${again.port}`],
      api_key: key,
    });
    for (const name of ["credentials.json", "bootstrap-key", "cluster-token"]) {
      expect(statSync(join(first.data, name)).mode & 0o777, name).toBe(0o600);
    }
  });

  // holds: start-table
  it("prints commands that work when they are pasted into a shell", async () => {
    const { driven } = await up({});
    for (const { command, stdout } of await pasteCommands(driven)) {
      expect(stdout, command).toContain("It lifts the warp.");
    }
  });

  // holds: start-table
  it("prints such commands also as it is bundled for `npm start`", async () => {
    const port = String(await freePort());
    const data = join(scratch, "data-bundled");
    const flags = ["--profile", "tiny", "--port", port, "--data", data];
    const driven = new DrivenProcess([process.execPath, programOf("cli"), "up", ...flags]);
    started.push(driven);
    for (const { command, stdout } of await pasteCommands(driven)) {
      expect(stdout, command).not.toBe("");
    }
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(0);
  });

  it("exits in order with 0 at one Ctrl-C", async () => {
    const { driven } = await up({ verbose: true });
    await driven.printed(/Ctrl-C stops everything/);
    const pids = await childPids(driven.child.pid ?? 0);
    expect(pids).toHaveLength(2);
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(0);
    expect(driven.stdout).toContain("Heddle is up");
    expect(driven.stderr).toMatch(/stopped\.\n$/);
    expect(driven.stderr).toMatch(/master-1 +stopped\nworker-1 +asked to stop/);
    await allGone(pids, 0);
  });

  it("exits with 130 if it is interrupted before the cluster answers", async () => {
    const { driven } = await up({});
    await driven.printed(/pulling/);
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(130);
  });

  it("leaves no process behind when it is killed", async () => {
    const { driven } = await up({}, { SCRIPT: "grandchild" });
    await driven.printed(/Ctrl-C stops everything/);
    const pids = await childPids(driven.child.pid ?? 0);
    const grandchildren = (await Promise.all(pids.map(childPids))).flat();
    driven.child.kill("SIGKILL");
    expect(await driven.end()).toBe("SIGKILL");
    await allGone(pids);
    expect(pids).toHaveLength(2);
    for (const pid of grandchildren) process.kill(pid, "SIGKILL");
  });

  it("takes over the lock of a killed process", async () => {
    const first = await up({});
    await first.driven.printed(/Ctrl-C stops everything/);
    first.driven.child.kill("SIGKILL");
    await first.driven.end();
    const second = await up({ data: first.data, once: true });
    expect(await second.driven.end()).toBe(0);
  });

  it("refuses a directory in use, and names the process that holds it", async () => {
    const first = await up({});
    await first.driven.printed(/Ctrl-C stops everything/);
    const second = await up({ data: first.data });
    expect(await second.driven.end()).toBe(5);
    expect(second.driven.stderr).toContain(
      `in use by process ${first.driven.child.pid} at http://127.0.0.1:${first.port}`,
    );
  });

  it("refuses a port in use before it starts anything, and names a free one", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as AddressInfo;
    const { driven, data } = await up({ port: String(port) });
    expect(await driven.end()).toBe(5);
    expect(driven.stderr).toMatch(new RegExp(`Port ${port} .* is in use.*--port \\d+`));
    expect(existsSync(join(data, "logs"))).toBe(false);
    server.close();
  });

  // holds: start-fallback
  it("falls back to the tiny model, and says that its answers are noise", async () => {
    const { driven } = await up({ once: true }, { SCRIPT: "fail" });
    expect(await driven.end()).toBe(0);
    expect(driven.stderr).toContain("could not be downloaded: no source could be reached.\n");
    expect(driven.stderr).not.toContain("a replica failed");
    expect(driven.stderr).toMatch(/NOISE.*--model FILE/);
    expect(driven.stdout).toMatch(
      /Models and their weights\n +A tiny model .* NOISE\. The demo weights could not be downloaded: no source could be reached\.\n/,
    );
    expect(driven.stdout).toContain("scripted model of the tiny profile");
  });

  it("removes a model file that could not be loaded", async () => {
    const modelFile = join(scratch, "FamilyA-1-2B.gguf");
    writeFileSync(modelFile, "GGUF");
    const flags = { once: true, model: modelFile, profile: undefined, logLevel: "info" };
    const { driven } = await up(flags, { SCRIPT: "fail" });
    expect(await driven.end()).not.toBe(0);
    expect(driven.stderr).toContain("removed path=/api/v1/models/FamilyA-1-2B");
  });

  it("keeps a model file that could not be loaded if the cluster keeps running", async () => {
    const modelFile = join(scratch, "FamilyA-1-2B.gguf");
    writeFileSync(modelFile, "GGUF");
    const flags = { model: modelFile, profile: undefined, logLevel: "info" };
    const { driven } = await up(flags, { SCRIPT: "fail" });
    await driven.printed(/Ctrl-C stops everything/);
    expect(driven.stderr).toContain("Fix the file and FamilyA-1-2B is loaded automatically");
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(0);
    expect(driven.stderr).not.toContain("removed path=");
  });

  // holds: start-load-progress
  it("says that the model is loaded, before it answers", async () => {
    const { driven } = await up({ once: true }, { SCRIPT: "load" });
    expect(await driven.end()).toBe(0);
    expect(driven.stderr).toMatch(
      /loading the model FamilyA-1-2B \.\.\.\n(.*\n)*.*asking FamilyA-1-2B/,
    );
  });

  // holds: start-load-failure
  it("exits with the reason if the model fails repeatedly", async () => {
    const { driven } = await up({ once: true, profile: "gpu" }, { SCRIPT: "flap" });
    expect(await driven.end()).toBe(7);
    expect(driven.stderr).toContain("could not be loaded: no source could be reached.\n");
  });

  // holds: start-load-failure
  it("reports why there is no model and keeps running without --once", async () => {
    const { driven } = await up({ profile: "gpu" }, { SCRIPT: "fail" });
    await driven.printed(/Ctrl-C stops everything/);
    expect(driven.stderr).toContain(
      "The model could not be loaded: no source could be reached. The cluster keeps running without it.\n",
    );
    expect(driven.stdout).toContain("Heddle is up");
    expect(driven.stdout).toMatch(
      /FamilyA-1-2B\n +FAILED: no source could be reached\. No model answers\.\n +Weights: scripted/,
    );
    expect(driven.stdout).not.toContain("Try it");
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(0);
  });

  it("exits in order and leaves no lock when its output is closed", async () => {
    const { driven, data } = await up({});
    await driven.printed(/pulling/);
    driven.child.stdout?.destroy();
    await driven.printed(/stopping/);
    await driven.end();
    expect(existsSync(join(data, "lock"))).toBe(false);
    expect(driven.stderr).not.toContain("EPIPE");
  });

  // holds: start-fallback
  it("does not fall back if a profile was chosen", async () => {
    const { driven } = await up({ once: true, profile: "gpu" }, { SCRIPT: "fail" });
    expect(await driven.end()).toBe(7);
    expect(driven.stderr).toContain("could not be loaded: no source could be reached");
  });

  it("reports a master that never starts, with its last output", async () => {
    const { driven } = await up({}, { SCRIPT: "crash" });
    expect(await driven.end()).toBe(7);
    expect(driven.stderr).toMatch(/master-1 keeps crashing.*Error: the disk is on fire.*5 crashes/);
  });

  it("continues without a master that never starts, and names the remedy", async () => {
    const { driven, data, port } = await up(
      { masters: "3", port: String(await freePorts([0, 1, 2])) },
      { SCRIPT: "crash-first" },
    );
    await driven.printed(/Ctrl-C stops everything/);
    expect(driven.stderr).toMatch(/master-1 .*Error: the disk is on fire.*5 crashes/);
    expect(driven.stderr).toContain(
      `master-1 is not restarted; master-2 and master-3 continue. Fix the reported problem and restart the cluster. If its files are damaged, delete them before: rm -r ${data}/master-1 `,
    );
    expect(driven.stdout).not.toContain("API (master-1)");
    expect(driven.stdout).toContain(`curl http://127.0.0.1:${port + 1}/api/v1/`);
    driven.child.kill("SIGINT");
    expect(await driven.end()).toBe(0);
  });

  it("restarts a process that crashes", async () => {
    const { driven } = await up({ once: true }, { SCRIPT: "crash-once" });
    expect(await driven.end()).toBe(0);
    expect(driven.stderr).toMatch(/worker-1 +it exited with code 3; it last said: about to crash/);
  });
});
