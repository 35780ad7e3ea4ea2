import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "@heddle/base/testing/free-ports";
import { afterAll, beforeAll, expect, it } from "vitest";
import { DrivenProcess } from "../apps/cli/src/testing/driven-process.ts";

// The commands of README.md, unchanged except for the port, the key's home and the job's id.

const ROOT = join(import.meta.dirname, "..");
const MAIN = join(ROOT, "apps/cli/dist/main.js");
const README = readFileSync(join(ROOT, "README.md"), "utf8");
const PATIENCE_MS = 240_000;
const run = promisify(execFile);
const home = mkdtempSync(join(tmpdir(), "heddle-readme-"));
/** The machine's own Node and npm. */
const PATH = (process.env["PATH"] ?? "")
  .split(delimiter)
  .filter((path) => !path.includes("node_modules"))
  .join(delimiter);

/** A user's commands by prefix, and their expected output. */
const PRINTS: Readonly<Record<string, RegExp>> = {
  "curl http://127.0.0.1:8080/api/v1/chat/completions": /"object":"chat\.completion"/,
  'npm run --silent heddle -- chat "What is a loom?"': /tokens in/,
  "npm run --silent heddle -- models list -o wide": /FamilyA-1-2B/,
  "npm run --silent heddle -- keys create ci": /hdl_live_\w+/,
  "npm run --silent heddle -- --help": /Usage: heddle/,
  "npx heddle models list": /FamilyA-1-2B/,
  "npm run --silent heddle -- jobs submit examples/hello.yaml --watch": /job_\w+[\s\S]*SUCCEEDED/,
  "npm run --silent heddle -- jobs logs -f JOB_ID": /hello from worker-1, step 4/,
  "npm run --silent heddle -- jobs submit examples/gang.yaml --dry-run": /worker-1/,
  "npm run --silent heddle -- jobs submit --name once": /job_/,
  "npm run --silent heddle -- jobs list --state running,pending": /STATE|no jobs/i,
};

/** Commands that are slow or cannot run here: the file that tests each, and text in it. */
const ELSEWHERE: Readonly<Record<string, readonly [file: string, text: string]>> = {
  "git clone": [".ci/run", "npm"],
  "npm start": ["tools/launch.test.ts", "npm"],
  "npm run --silent heddle -- jobs submit examples/cartpole.yaml": [
    "apps/master/src/acceptance/training-jobs.test.ts",
    "cartpole",
  ],
  "npm test": ["tools/summarize-tests.test.ts", "passed"],
  "NX_SKIP_NX_CACHE=true npm test": ["tools/nx.test.ts", "from the cache"],
  "npm run typecheck && npm run lint": [".ci/run", "lint"],
  ".ci/run": [".ci/run", "npm"],
};

let cluster: DrivenProcess;
let port: number;

beforeAll(async () => {
  port = await freePort();
  const place = ["--port", String(port), "--data", join(home, ".heddle")];
  const offers = ["--profile", "tiny", "--simulate-gpus", "4xH100-80GB"];
  cluster = new DrivenProcess([process.execPath, MAIN, "up", ...place, ...offers], {
    ...{ HOME: home, HEDDLE_DRAIN_MS: "100" },
  });
  await cluster.printed(/Ctrl-C stops everything/);
}, PATIENCE_MS);
afterAll(async () => {
  cluster.child.kill("SIGINT");
  await cluster.end();
  rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
}, PATIENCE_MS);

/** The blocks of that language, for this cluster. */
function blocks(language: string): string[] {
  const found = README.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm"));
  return [...found].map(([, body = ""]) => body);
}

/** One command each, with the lines that belong to it. */
function commands(): string[] {
  const lines = blocks("sh")
    .join("\n")
    .replaceAll("\\\n", " \\\n")
    .split(/(?<!\\)\n/);
  // A quoted body goes on in the next line.
  const whole: string[] = [];
  for (const line of lines) {
    const last = whole.at(-1) ?? "";
    if (last.split("'").length % 2 === 0) whole[whole.length - 1] = `${last}\n${line}`;
    else if (line.trim() !== "") whole.push(line.trim());
  }
  return whole;
}

const begins = (table: object, command: string) =>
  Object.keys(table).find((known) => command.startsWith(known));

const here = (text: string) => text.replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`);

it("README: each command is run here, or the file that shows it is there", () => {
  const all = commands();
  expect(all.length).toBeGreaterThan(12);
  expect(all.filter((command) => !begins({ ...PRINTS, ...ELSEWHERE }, command))).toEqual([]);
  const known = Object.keys({ ...PRINTS, ...ELSEWHERE });
  expect(known.filter((each) => !all.some((command) => command.startsWith(each)))).toEqual([]);
  for (const [file, text] of Object.values(ELSEWHERE)) {
    expect(existsSync(join(ROOT, file)) && readFileSync(join(ROOT, file), "utf8")).toContain(text);
  }
});

it("README: its commands print what they should", { timeout: PATIENCE_MS }, async () => {
  let id = "";
  for (const command of commands()) {
    const known = begins(PRINTS, command);
    if (known === undefined) continue;
    const text = here(command).replaceAll("JOB_ID", id);
    const { stdout, stderr } = await run("bash", ["-ec", text], {
      cwd: ROOT,
      env: { PATH, HOME: home },
    });
    expect(`${stdout}${stderr}`, command).toMatch(PRINTS[known] as RegExp);
    id ||= /job_\w+/.exec(stdout)?.[0] ?? "";
  }
});

it("README: its program for the OpenAI SDK prints an answer", {
  timeout: PATIENCE_MS,
}, async () => {
  const [program = ""] = blocks("js").map(here);
  const key = readFileSync(join(home, ".heddle/bootstrap-key"), "utf8").trim();
  const env = { PATH, HOME: home, HEDDLE_API_KEY: key };
  const args = ["--input-type=module", "-e", program];
  const { stdout } = await run(process.execPath, args, { cwd: ROOT, env });
  expect(stdout.length).toBeGreaterThan(0);
});
