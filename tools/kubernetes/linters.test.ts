// holds: kube-linted

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { kubeTool } from "./kube-tools.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const files = execFileSync("git", ["ls-files", "-z"], { cwd: ROOT, encoding: "utf8" })
  .split("\0")
  .filter((path) => path !== "");
const BASH = "#!/usr/bin/env bash";
const isScript = (path: string) =>
  /(^|\/)[\w-]+(\.sh)?$/.test(path) && readFileSync(join(ROOT, path), "utf8").startsWith(BASH);
/** Templates of the chart are YAML only once they are rendered. */
const isYaml = (path: string) => /\.ya?ml$/.test(path) && !path.includes("/templates/");
/** The layout is the formatter's. */
const YAML_RULES = {
  extends: "default",
  rules: {
    braces: "disable",
    brackets: "disable",
    comments: "disable",
    "document-start": "disable",
    indentation: "disable",
    "line-length": "disable",
  },
};

const LINTERS = [
  { program: "shellcheck", args: [], wanted: files.filter(isScript) },
  {
    program: "yamllint",
    args: ["--strict", "-d", JSON.stringify(YAML_RULES)],
    wanted: files.filter(isYaml),
  },
  { program: "dclint", args: ["--quiet"], wanted: ["docker-compose.yml"] },
];
for (const { program } of LINTERS) {
  if (!kubeTool(program)) console.log(`${program} is not here: its files are not linted`);
}

it.each(LINTERS)("linters: $program has something to check", ({ wanted }) => {
  expect(wanted.length).toBeGreaterThan(0);
});

it.each(LINTERS.filter(({ program }) => kubeTool(program)))(
  "linters: $program finds no fault",
  ({ program, args, wanted }) => {
    let found = "";
    try {
      const options = { cwd: ROOT, encoding: "utf8", stdio: "pipe" } as const;
      execFileSync(kubeTool(program) ?? program, [...args, ...wanted], options);
    } catch (error) {
      const { stdout, stderr } = error as { stdout: string; stderr: string };
      found = `${stdout}${stderr}` || String(error);
    }
    expect(found).toBe("");
  },
);
