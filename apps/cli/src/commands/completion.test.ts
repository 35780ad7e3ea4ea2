// holds: cli-completion

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

// The scripts in the shells themselves.

const folder = mkdtempSync(join(tmpdir(), "heddle-completion-"));
const scripts = {
  bash: join(folder, "bash"),
  zsh: join(folder, "zsh"),
  fish: join(folder, "fish"),
};

const main = fileURLToPath(new URL("../../dist/main.js", import.meta.url));
const heddle = (...words: readonly string[]) =>
  spawnSync(process.execPath, [main, ...words], { encoding: "utf8" });

beforeAll(() => {
  for (const [shell, path] of Object.entries(scripts)) {
    writeFileSync(path, heddle("completion", shell).stdout);
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

type Shell = keyof typeof scripts;

/** The shell's program that prints what it offers behind the words. */
const PROGRAMS: Readonly<Record<Shell, (words: readonly string[]) => string>> = {
  bash: (words) => `
    source ${scripts.bash}
    COMP_WORDS=(${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length - 1}
    _heddle; printf '%s\\n' "\${COMPREPLY[@]}"`,
  // As bashcompinit calls a function of bash. Zsh itself keeps what begins with the word.
  zsh: (words) => `
    source ${scripts.zsh} 2>/dev/null
    emulate sh; setopt kshglob noshglob braceexpand ksharrays
    COMP_WORDS=(${words.map((word) => `"${word}"`).join(" ")}); COMP_CWORD=${words.length - 1}
    _heddle; printf '%s\\n' "\${COMPREPLY[@]}"`,
  fish: (words) => `source ${scripts.fish}; complete -C "${words.join(" ")}" | cut -f 1`,
};

const SHELLS = (Object.keys(PROGRAMS) as Shell[]).filter((shell) => {
  const isThere = spawnSync(shell, ["-c", "true"]).status === 0;
  if (!isThere) console.log(`skipped: completion in ${shell}, which is not on this machine`);
  return isThere;
});

function offered(shell: Shell, ...words: readonly string[]): string[] {
  const { stdout, stderr } = spawnSync(shell, ["-c", PROGRAMS[shell](["heddle", ...words])], {
    encoding: "utf8",
    env: { PATH: process.env["PATH"], HOME: folder },
    timeout: 100_000,
  });
  expect(stderr).toBe("");
  const lines = stdout.split("\n").filter((line) => line !== "");
  return shell === "zsh" ? lines.filter((line) => line.startsWith(words.at(-1) ?? "")) : lines;
}

test.each(SHELLS)("completion: commands, options and choices in %s", (shell) => {
  expect(offered(shell, "jo")).toEqual(["jobs"]);
  expect(offered(shell, "jobs", "su").toSorted()).toEqual(["submit", "suspend"]);
  expect(offered(shell, "jobs", "submit", "--ta")).toEqual(["--tasks"]);
  // Global options, also before the command, and a command that is a value of none.
  expect(offered(shell, "jobs", "list", "--endp")).toEqual(["--endpoint"]);
  expect(offered(shell, "-o", "json", "keys", "rev")).toEqual(["revoke"]);
  expect(offered(shell, "-o", "y")).toEqual(["yaml"]);
  expect(offered(shell, "completion", "z")).toEqual(["zsh"]);
  expect(offered(shell, "jobs", "logs", "--stream", "std").toSorted()).toEqual([
    "stderr",
    "stdout",
  ]);
});

test.runIf(SHELLS.includes("bash"))(
  "completion: a value behind = in bash, as it splits words",
  () => {
    expect(offered("bash", "jobs", "list", "--output", "=", "ya")).toEqual(["yaml"]);
    expect(offered("bash", "--output", "=")).toContain("wide");
  },
);

test("completion: another shell is refused with those that there are", () => {
  const { status, stderr } = heddle("completion", "tcsh");
  expect(status).toBe(2);
  expect(stderr).toContain("Allowed choices are bash, zsh, fish");
});
