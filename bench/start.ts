import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync } from "node:fs";
import { join, resolve } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { benchFolder, readOptions, repositoryRoot } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { printTable, printVerdicts } from "./support/table.ts";

// From `npm start` on warm caches to the first token of its self-check, step by step.

const usage =
  "npm run bench:start -- [--model FILE.gguf | --profile tiny] [--runs 5] [--via npm|node]";
const options = readOptions(usage, ["model", "profile", "runs", "via"]);
const runs = Number(options["runs"] ?? 5);
const barMs = 5_000;

/** Milliseconds since the command was started. */
interface Start {
  readonly processes: number;
  readonly model: number;
  readonly firstToken: number;
  readonly end: number;
}

mkdirSync(join(benchFolder, "data"), { recursive: true });
const data = mkdtempSync(join(benchFolder, "data/start-"));
console.log("one start to warm the caches, which is not counted ...");
await startOnce();
const starts: Start[] = [];
for (let run = 0; run < runs; run += 1) {
  starts.push(await startOnce());
  console.log(`start ${run + 1} of ${runs}: first token after ${starts.at(-1)?.firstToken} ms`);
}
const names = ["processes", "model", "firstToken", "end"] as const;
const medians = names.map((name) => median(starts.map((start) => start[name])));
printTable(
  `${command().join(" ")}, median of ${runs} starts with warm caches (ms since the start)`,
  ["", "every process is ready", "the model is loaded", "first token", "ended (--once)"],
  [
    ["median", ...medians],
    ...starts.map((start, i) => [`${i + 1}`, ...names.map((n) => start[n])]),
  ],
);
const firstToken = medians[2] ?? Number.NaN;
const verdicts = [
  {
    bar: `first token <= ${barMs / 1000} s after the command`,
    measured: `${(firstToken / 1000).toFixed(2)} s`,
    pass: firstToken <= barMs,
  },
];
printVerdicts(verdicts);
writeReport(options, "start", { command: command(), starts, verdicts });

function command(): string[] {
  const what = options["model"]
    ? ["--model", resolve(options["model"])]
    : ["--profile", options["profile"] ?? "tiny"];
  const flags = ["--once", "--verbose", ...what];
  if (options["via"] === "node") return [process.execPath, "apps/cli/dist/main.js", "up", ...flags];
  return ["npm", "start", "--silent", "--", ...flags];
}

async function startOnce(): Promise<Start> {
  const [program = "", ...args] = command();
  const place = ["--data", data, "--port", String(await freePort())];
  const startedAt = performance.now();
  const at: Partial<Record<keyof Start, number>> = {};
  const mark = (name: keyof Start) => {
    at[name] ??= Math.round(performance.now() - startedAt);
  };
  const child = spawn(program, [...args, ...place], {
    cwd: repositoryRoot,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  child.stderr.on("data", (chunk) => {
    text += chunk;
    if (text.match(/^(master|worker|parameter-server)-1 +ready\b/gm)?.length === 3) {
      mark("processes");
    }
    if (/^asking /m.test(text)) mark("model");
  });
  child.stdout.on("data", () => mark("firstToken"));
  const code = await new Promise((done) => child.on("close", done));
  mark("end");
  const { processes, model, firstToken, end } = at;
  if (code === 0 && processes && model && firstToken && end) {
    return { processes, model, firstToken, end };
  }
  throw new Error(`the start failed with ${code}:\n${text}`);
}
