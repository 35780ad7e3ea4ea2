// holds: sec-tls-up, sec-master-join

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { freePorts } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { DrivenProcess } from "../testing/driven-process.ts";

// `heddle up --tls` with the real programs, and a cluster made from its backup.

const MAIN = programOf("cli");
const scratch = mkdtempSync(join(tmpdir(), "heddle-up-tls-"));
let running: DrivenProcess | undefined;

afterEach(async () => {
  running?.child.kill("SIGKILL");
  await running?.end();
  running = undefined;
});
afterAll(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 }));

/** Resolves when the self-check has its answer: a worker has joined by its certificate. */
async function up(data: string): Promise<void> {
  const port = await freePorts([0, 1, 2, 1_000, 1_001, 1_002]);
  const place = ["--data", data, "--models-cache", join(scratch, "cache"), "--port", String(port)];
  const flags = ["--tls", "--masters", "3", "--parameter-servers", "0", "--profile", "tiny"];
  running = new DrivenProcess([process.execPath, MAIN, "up", ...flags, ...place], {
    HEDDLE_DRAIN_MS: "300",
  });
  await running.printed(/Ctrl-C stops everything/);
}

async function stop(): Promise<void> {
  running?.child.kill("SIGINT");
  expect(await running?.end()).toBe(0);
}

async function heddle(data: string, ...args: string[]): Promise<string> {
  const command = new DrivenProcess([process.execPath, MAIN, ...args], { HEDDLE_DATA: data });
  expect(await command.end(), command.stderr).toBe(0);
  return command.stdout;
}

async function untilAllVote(data: string): Promise<void> {
  let text = "";
  const areVoters = async () => {
    text = await heddle(data, "cluster", "members", "-o", "json");
    const roles = (JSON.parse(text) as { role: string }[]).map(({ role }) => role).sort();
    return roles.join() === "follower,follower,leader";
  };
  await eventually(areVoters, () => `all vote: ${text}`);
}

describe("heddle up --tls", () => {
  it("serves by certificates; its backup restores to a cluster of that authority", async () => {
    const [old, restored] = [join(scratch, "old"), join(scratch, "restored")];
    const backup = join(scratch, "state.backup");
    await up(old);
    await untilAllVote(old);
    await heddle(old, "keys", "create", "kept");
    await heddle(old, "cluster", "backup", backup);
    await stop();
    mkdirSync(restored);
    await heddle(old, "cluster", "restore", backup, "--data", join(restored, "master-1"));
    copyFileSync(join(old, "bootstrap-key"), join(restored, "bootstrap-key"));
    await up(restored);
    expect(await heddle(restored, "keys", "list")).toContain("kept");
    await untilAllVote(restored);
    const authorityOf = (data: string) => readFileSync(join(data, "cluster-ca.pem"), "utf8");
    expect(authorityOf(restored)).toBe(authorityOf(old));
    await stop();
  });
});
