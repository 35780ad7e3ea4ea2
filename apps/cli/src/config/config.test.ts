// holds: cli-config-validate

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { checkSettings } from "@heddle/contracts/configuration/read-settings";
import { readSettingsFile } from "@heddle/contracts/configuration/settings-file";
import { afterAll, expect, test } from "vitest";
import { z } from "zod";

const folder = mkdtempSync(join(tmpdir(), "heddle-config-"));
const path = join(folder, "heddle.yaml");
afterAll(() => rmSync(folder, { recursive: true }));

const main = fileURLToPath(new URL("../../dist/main.js", import.meta.url));

function heddle(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { PATH, HOME } = process.env;
  const options = { encoding: "utf8", env: { PATH, HOME, ...env } } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...args], options);
  return { status, stdout, stderr };
}

function faultsOf(text: string, env: Readonly<Record<string, string>> = {}): string[] {
  writeFileSync(path, text);
  const { faults } = checkSettings({ file: readSettingsFile("the file", path), env });
  return faults.map(({ place, message }) => `${place} ${message}`);
}

test("config validate: a correct file is accepted without a cluster", () => {
  writeFileSync(
    path,
    "http_port: 9090\npeers: {a: '10.0.0.1:8081'}\nname: a\nplugins: [./x.mjs]\nmax_calls: 9\n",
  );
  expect(heddle(["config", "validate", path])).toEqual({
    status: 0,
    stdout: `${path}: valid, 5 settings.\nSIGHUP applies max_calls.\nA restart applies http_port, peers, name, plugins.\n`,
    stderr: "",
  });
});

test("config validate: all faults are shown at once with line and suggestion", () => {
  const text =
    "# one master\nhtpp_port: 80\nlog_level: loud\n\nmax-calls: 1\npeers:\n  b: nowhere\n";
  writeFileSync(path, text);
  const { status, stdout, stderr } = heddle(["config", "validate", path]);
  expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
  expect(stderr.trim().split("\n")).toEqual([
    `${path}:2: htpp_port is no setting; the nearest is http_port.`,
    `${path}:5: max-calls is no setting; the nearest is max_calls.`,
    `${path}:6: peers takes name=host:port,... with ports from 1 to 65535, got "b=nowhere".`,
    `${path}:3: log_level must be one of debug, info, warn, error, silent, got "loud".`,
  ]);
});

test("config validate: JSON has faults by setting, line and message", () => {
  writeFileSync(path, "http_port: 70000\n");
  const { status, stdout } = heddle(["config", "validate", path, "-o", "json"]);
  expect(status).toBe(1);
  expect(JSON.parse(stdout)).toEqual({
    file: path,
    valid: false,
    faults: [
      {
        setting: "http_port",
        place: `${path}:1: http_port`,
        message: "must be a whole number from 0 to 65535, got 70000",
      },
    ],
  });
});

test("config validate: --env checks the variables of the shell too", () => {
  writeFileSync(path, "http_port: 1\n");
  const env = { HEDDLE_MAX_CALLS: "many" };
  expect(heddle(["config", "validate", path], env).status).toBe(0);
  const { status, stderr } = heddle(["config", "validate", path, "--env"], env);
  expect(status).toBe(1);
  expect(stderr).toContain('HEDDLE_MAX_CALLS must be a whole number from 1 to 1000000, got "many"');
});

test("config: faults between settings name their lines", () => {
  expect(faultsOf("model_file: a.gguf\nhttp_host: 0.0.0.0\nprofile: tiny\n")).toEqual([
    `${path}:3: profile and ${path}:1: model_file exclude each other: give one of them`,
    expect.stringMatching(/heddle\.yaml:2: http_host 0\.0\.0\.0 is reachable .*--insecure-bind/),
  ]);
  expect(faultsOf("max_body_bytes: 300000000\n")).toEqual([
    `--max-reading-bytes must be at least twice ${path}:1: max_body_bytes`,
  ]);
  expect(faultsOf("tls: sometimes\n", { HEDDLE_TLS: "true" })).toEqual([]);
  expect(faultsOf("", { HEDDLE_TLS: "1" })).toEqual(['HEDDLE_TLS must be true or false, got "1"']);
});

test("config: a file that is no map of settings is refused with its line", () => {
  expect(() => faultsOf("- a\n")).toThrow(`${path}:1: expected settings, such as`);
  expect(() => faultsOf("a: 1\nb: [\n")).toThrow(/heddle\.yaml:3: /);
  expect(() => faultsOf("a: 1\na: 2\n")).toThrow(/heddle\.yaml:2: Map keys must be unique/);
  expect(() => readSettingsFile("--config", folder)).toThrow(/--config .* is a directory/);
  expect(faultsOf("")).toEqual([]);
  expect(faultsOf('{"http_port": 9}')).toEqual([]);
});

test("config example: it is valid as it is, and with all of its settings", () => {
  const { stdout } = heddle(["config", "example"]);
  expect(faultsOf(stdout)).toEqual([]);
  const whole = stdout.replace(/^#(\w+:)/gm, "$1");
  expect(whole).toMatch(/^http_port: 8080$/m);
  expect(faultsOf(whole)).toEqual([]);
});

test("config schema: it accepts and refuses what the settings do", () => {
  const schema = z.fromJSONSchema(JSON.parse(heddle(["config", "schema"]).stdout));
  expect(schema.safeParse({ http_port: 9, peers: "a=b:1", plugins: ["x"] }).success).toBe(true);
  for (const wrong of [{ htpp_port: 9 }, { http_port: "x" }, { audit_mode: "never" }]) {
    expect(schema.safeParse(wrong).success).toBe(false);
  }
});
