// holds: sec-secret-paths

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { registeredSecretPaths, registerSecretPaths } from "./secret-paths.ts";

let folder = "";
let registry = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-secrets-"));
  registry = join(folder, ".heddle", "secret-paths");
});
afterEach(() => rmSync(folder, { recursive: true }));

const register = (paths: readonly string[], faults: string[] = []) =>
  registerSecretPaths(paths, (message) => faults.push(message), [registry]);
const registered = () => registeredSecretPaths([registry]);
/** The PID of a process that has ended. */
const { pid } = spawnSync("true");
/** Registers paths for it. */
function leave(name: string, paths: readonly string[]): void {
  writeFileSync(join(registry, `${name}.json`), JSON.stringify({ pid, started: "1", paths }));
}

test("secret paths: entries are absolute, unique and readable by their owner alone", () => {
  expect(registered()).toEqual([]);
  for (let start = 0; start < 2; start++) register([join(folder, "data"), "token", "token"]);
  expect(registered()).toEqual([join(folder, "data"), join(process.cwd(), "token")].sort());
  expect(statSync(registry).mode & 0o777).toBe(0o700);
  expect(readdirSync(registry).length).toBe(1);
});

test("secret paths: an entry outlives its process until its paths are gone", () => {
  register([join(folder, "none-yet")]);
  const data = join(folder, "data");
  mkdirSync(data);
  leave("ended", [data, join(folder, "never")]);
  leave("over", [join(folder, "never")]);
  register([join(folder, "another")]);
  const kept = [data, join(folder, "never"), join(folder, "none-yet"), join(folder, "another")];
  expect(registered().sort()).toEqual(kept.sort());
  rmSync(data, { recursive: true });
  register([join(folder, "another")]);
  expect(registered().sort()).toEqual([join(folder, "none-yet"), join(folder, "another")].sort());
});

test("secret paths: entries are bounded in count and bytes; damaged ones are skipped", () => {
  register([folder]);
  for (let n = 0; n < 300; n++) leave(`e${n}`, [folder]);
  writeFileSync(join(registry, "damaged.json"), "{");
  register([join(folder, "last")]);
  expect(readdirSync(registry).length).toBe(256);
  expect(registered()).toContain(join(folder, "last"));
  const faults: string[] = [];
  register(
    Array.from({ length: 300 }, (_, n) => join(folder, `${"x".repeat(80)}${n}`)),
    faults,
  );
  expect(faults).toEqual([expect.stringMatching(/need more than 16384 bytes.*--task-hidden/)]);
});

test("secret paths: a directory that is not writable is reported with advice", () => {
  writeFileSync(join(folder, ".heddle"), "");
  const faults: string[] = [];
  register([folder], faults);
  expect(faults).toEqual([expect.stringMatching(/could not be registered .*--task-hidden/)]);
});
