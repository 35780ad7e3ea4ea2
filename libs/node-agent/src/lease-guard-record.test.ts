// holds: task-lease-guard

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, beforeEach, expect, test } from "vitest";
import { REVOKE_SIGNAL, recordLeaseGuard, revokeLease } from "./lease-guard-record.ts";

/** Ends at the signal, once it handles it. */
const program = `process.stdin.once("data", () => {
  process.on("${REVOKE_SIGNAL}", () => process.exit(7));
  process.stdout.write("handles it");
});
process.stdout.write("runs");`;

let directory: string;
let guard: ChildProcess;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "heddle-guard-"));
  guard = spawn(process.execPath, ["-e", program], { stdio: ["pipe", "pipe", "inherit"] });
  await once(guard.stdout as NonNullable<typeof guard.stdout>, "data");
  recordLeaseGuard(directory, guard.pid as number);
});
afterEach(() => {
  guard.kill("SIGKILL");
  rmSync(directory, { recursive: true });
});

async function handlesTheSignal(): Promise<void> {
  guard.stdin?.write("continue\n");
  await once(guard.stdout as NonNullable<typeof guard.stdout>, "data");
}

test("lease guard: it is signalled once it handles the signal, and is gone then", async () => {
  expect(revokeLease(directory)).toBe(true);
  await handlesTheSignal();
  const ended = once(guard, "exit");
  expect(revokeLease(directory)).toBe(true);
  expect(await ended).toEqual([7, null]);
  expect(revokeLease(directory)).toBe(false);
});

test.each([
  { what: "another boot", changed: { boot: "another" } },
  { what: "another start", changed: { started: "1" } },
])("lease guard: a process with its id and of $what is not signalled", async ({ changed }) => {
  await handlesTheSignal();
  const path = join(directory, "lease-guard.json");
  const kept = readFileSync(path, "utf8");
  writeFileSync(path, JSON.stringify({ ...JSON.parse(kept), ...changed }));
  expect(revokeLease(directory)).toBe(false);
  writeFileSync(path, kept);
  const ended = once(guard, "exit");
  await eventually(() => revokeLease(directory));
  expect(await ended).toEqual([7, null]);
});

test("lease guard: without a record, or with a damaged one, there is none", () => {
  for (const text of ["", "null", "{}", '{"pid":1}']) {
    writeFileSync(join(directory, "lease-guard.json"), text);
    expect(revokeLease(directory)).toBe(false);
  }
  rmSync(join(directory, "lease-guard.json"));
  expect(revokeLease(directory)).toBe(false);
});
