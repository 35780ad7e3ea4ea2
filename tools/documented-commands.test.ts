// holds: start-documented-commands

import { execFile } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "@heddle/base/testing/free-ports";
import { programOf } from "@heddle/base/testing/programs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { makeProgram } from "../apps/cli/src/program.ts";
import { DrivenProcess } from "../apps/cli/src/testing/driven-process.ts";
import { commandFolder } from "../apps/master/test/runbook.ts";
import { type ShellBlock, shellBlocks } from "../apps/master/test/shell-blocks.ts";

// The commands of all pages, unchanged but for the port, in their order, against one cluster.

const ROOT = join(import.meta.dirname, "..");
const MAIN = programOf("cli");
const run = promisify(execFile);
const home = mkdtempSync(join(tmpdir(), "heddle-pages-"));
/** The machine's own Node and npm. */
const PATH = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);
const { NODE_COMPILE_CACHE } = process.env;

/** Pages that need clusters of their own, and the test that runs all their blocks. */
const PAGES_ELSEWHERE: Readonly<Record<string, string>> = {
  "docs/guide/pipelines.md": "apps/master/src/acceptance/jobs/pipelines.test.ts",
  "docs/guide/several-machines.md": "tools/installed-package.test.ts",
  "docs/runbooks/backup.md": "apps/master/src/acceptance/masters/runbooks.test.ts",
  "docs/runbooks/forced-recovery.md": "apps/master/src/acceptance/masters/runbooks.test.ts",
  "docs/runbooks/grow-and-shrink.md": "apps/master/src/acceptance/masters/runbooks.test.ts",
  "docs/runbooks/replace-a-master.md": "apps/master/src/acceptance/masters/runbooks.test.ts",
};

/** Every block that no test runs, by page. */
const NOT_RUN: Readonly<Record<string, readonly string[]>> = {
  "README.md": ["needs a fresh clone", "runs the tests themselves"],
  "docs/benchmarks.md": ["measures for minutes"],
  "docs/guide/engines.md": ["downloads from npm and nuget.org", "needs an upstream"],
  "docs/guide/kubernetes.md": ["builds images"],
  "docs/verification.md": ["runs the tests themselves"],
  "libs/simulation/README.md": ["simulates for minutes"],
};

const textOf = (page: string) => readFileSync(join(ROOT, page), "utf8");
const PAGES = globSync("{*.md,{docs,apps,libs,examples}/**/*.md}", {
  cwd: ROOT,
  exclude: (path) => path.includes("node_modules"),
}).sort();
const BLOCKS: ReadonlyMap<string, readonly ShellBlock[]> = new Map(
  PAGES.map((page) => [page, shellBlocks(textOf(page))]),
);
const RUN_HERE = PAGES.filter(
  (page) => !PAGES_ELSEWHERE[page] && BLOCKS.get(page)?.some(({ kind }) => kind === "run"),
);

let cluster: DrivenProcess;
let port: number;

beforeAll(async () => {
  port = await freePort();
  const place = ["--port", String(port), "--data", join(home, ".heddle")];
  const offers = ["--profile", "tiny", "--simulate-gpus", "4xH100-80GB"];
  cluster = new DrivenProcess([process.execPath, MAIN, "up", ...place, ...offers], {
    HOME: home,
    HEDDLE_DRAIN_MS: "100",
    HEDDLE_SECRETS_KEY: randomBytes(32).toString("base64"),
  });
  await cluster.printed(/Ctrl-C stops everything/);
});
afterAll(async () => {
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
});

const here = (text: string) => text.replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`);

/** A folder with the examples; npm's commands of the README run in the clone itself. */
function folderOf(page: string): string {
  if (page === "README.md") return ROOT;
  const folder = join(home, page.replaceAll("/", "-"));
  mkdirSync(folder);
  symlinkSync(join(ROOT, "examples"), join(folder, "examples"));
  return folder;
}

/** Ends the output of each block; a model of noise may print any character. */
const END = `[end of block ${randomUUID()}]`;

/** One shell for a page, so that its variables hold. */
function scriptOf(blocks: readonly ShellBlock[]): string {
  const steps = blocks.map(({ text, exit }) => {
    const checked = `set +e\n${text}\ncode=$?\nset -e\n[ $code = ${exit} ] || exit $((code + 100))`;
    return `${exit === 0 ? text : checked}\necho '${END}'`;
  });
  return here(["exec 2>&1", ...steps].join("\n"));
}

/** Throws with the page, the line and the output of the block that ended with another code. */
async function runPage(page: string): Promise<void> {
  const blocks = (BLOCKS.get(page) ?? []).filter(({ kind }) => kind === "run");
  const cwd = folderOf(page);
  const env = {
    HOME: home,
    NODE_COMPILE_CACHE,
    PATH: [...(cwd === ROOT ? [] : [commandFolder(home)]), PATH].join(delimiter),
  };
  const options = { cwd, env, maxBuffer: 2 ** 24 };
  const ended = await run("bash", ["-euo", "pipefail", "-c", scriptOf(blocks)], options).catch(
    (error: { readonly stdout: string }) => error,
  );
  const outputs = ended.stdout.split(END);
  for (const [i, { line, output, text }] of blocks.entries()) {
    const printed = outputs[i] ?? "";
    const place = `${page}:${line}: ${text}\nprinted:\n${printed}`;
    expect(outputs.length > i + 1, `${place}\nand failed`).toBe(true);
    expect(printed, place).toMatch(patternOf(output));
  }
}

/** Lines in their order, with others between them; blanks are as wide as they come. */
function patternOf(lines: readonly string[]): RegExp {
  const patterns = lines.map((line) =>
    line
      .split("...")
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/ +/g, " +"))
      .join(".*"),
  );
  return new RegExp(patterns.join("[\\s\\S]*"));
}

describe("the commands of the pages", () => {
  it("are run here, or by the test that the page names, or say why not", () => {
    const notRun: Record<string, string[]> = {};
    for (const [page, blocks] of BLOCKS) {
      for (const { kind, why, line, text } of blocks) {
        const at = `${page}:${line}`;
        if (kind === "not-run") notRun[page] = [...(notRun[page] ?? []), why];
        if (kind === "background" || kind === "settings")
          expect(PAGES_ELSEWHERE, at).toHaveProperty([page]);
        if (kind !== "tested-by") continue;
        const words = text.match(/[a-z]{3,}/g) ?? [];
        const tested = textOf(why);
        expect(
          words.some((word) => !/heddle|submit|npm|run/.test(word) && tested.includes(word)),
          at,
        ).toBe(true);
      }
    }
    expect(notRun).toEqual(NOT_RUN);
    for (const [page, test] of Object.entries(PAGES_ELSEWHERE)) {
      expect(textOf(test)).toContain(`"${page.replace(/^docs\/(runbooks\/)?|\.md$/g, "")}"`);
      expect(BLOCKS.get(page)?.length, page).toBeGreaterThan(0);
    }
    expect(RUN_HERE.length).toBeGreaterThan(7);
  });

  it.each(RUN_HERE)("%s: each block ends and prints as the page says", runPage);

  it.each(["README.md", "docs/guide/typescript-client.md"])(
    "%s: its program prints something",
    async (page) => {
      const [, program = ""] = /^```js\n([\s\S]*?)^```$/m.exec(textOf(page)) ?? [];
      const key = readFileSync(join(home, ".heddle/bootstrap-key"), "utf8").trim();
      const env = { PATH, HOME: home, HEDDLE_API_KEY: key };
      const args = ["--input-type=module", "-e", here(program)];
      const { stdout } = await run(process.execPath, args, { cwd: ROOT, env });
      expect(stdout.length).toBeGreaterThan(0);
    },
  );

  it("in a sentence: each names a verb and options that exist", () => {
    const faults = PAGES.flatMap((page) =>
      [...textOf(page).matchAll(/(?<!\\)`(heddle [a-z][^`\n]*)`/g)].flatMap(([, command = ""]) => {
        const fault = faultOf(command);
        return fault === undefined ? [] : [`${page}: ${command}: ${fault}`];
      }),
    );
    expect(faults).toEqual([]);
  });
});

/** What of a command line the program does not know. */
function faultOf(command: string): string | undefined {
  let at = makeProgram(() => async () => {});
  const known = [...at.options];
  const [, ...words] = command.split(/\s+/);
  for (const word of words) {
    if (at.commands.length === 0 || word === "--help") break;
    const next = at.commands.find((each) => each.name() === word);
    if (!next) return `no verb ${word}`;
    at = next;
  }
  known.push(...at.options);
  return words
    .filter((word) => /^--?[a-z]/i.test(word))
    .map((word) => word.replace(/=.*/, ""))
    .find(
      (word) =>
        !/^(-h|--help)$/.test(word) &&
        !known.some(({ long, short }) => [long, short].includes(word)),
    );
}
