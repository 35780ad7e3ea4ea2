import { existsSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "./child-process.ts";
import { benchFolder, repositoryRoot } from "./command-line.ts";
import { HeddleApi } from "./heddle-api.ts";
import { commandLine, processTree } from "./proc-files.ts";
import type { WatchedProcess } from "./process-sampler.ts";

/** A whole local cluster of real processes, as a user starts it. */
export interface RunningHeddle {
  readonly api: HeddleApi;
  /** The URL of every master, as `http://127.0.0.1:8080`. */
  readonly endpoints: readonly string[];
  readonly dataDirectory: string;
  /** The master, the worker and every engine process, as they are now. */
  processes(): readonly WatchedProcess[];
  stop(): Promise<void>;
}

const program = join(repositoryRoot, "apps/cli/dist/main.js");

export function newDataDirectory(): string {
  mkdirSync(join(benchFolder, "data"), { recursive: true });
  return mkdtempSync(join(benchFolder, "data/up-"));
}

/** Runs `heddle up` with its own data directory and waits until its self-check has passed. */
export async function heddleUp(
  flags: readonly string[],
  dataDirectory = newDataDirectory(),
): Promise<RunningHeddle> {
  if (!existsSync(program)) throw new Error("the workspace is not built: npm run build");
  const port = await freePort();
  const child = new Child({
    name: "heddle up",
    command: process.execPath,
    args: [program, "up", "--data", dataDirectory, "--port", String(port), ...flags],
    logFile: join(benchFolder, "logs/heddle-up.log"),
  });
  await child.line(/Ctrl-C stops everything/, 120_000);
  const credentials = readFileSync(join(dataDirectory, "credentials.json"), "utf8");
  const { endpoint, api_key } = JSON.parse(credentials) as { endpoint: string; api_key: string };
  return {
    api: new HeddleApi(endpoint, api_key),
    endpoints: child.lines.flatMap((line) => /(http\S+)\/api\/v1/.exec(line)?.[1] ?? []),
    dataDirectory,
    processes: () => processTree(child.pid).map((pid) => ({ pid, role: roleOf(pid, child.pid) })),
    stop: () => child.stop(),
  };
}

/**
 * Serves the built-in random model on one thread and returns its id. Its own share of a call is so
 * small that the path's shows, and it leaves the cores to the other processes.
 */
export async function serveTinyModel({ api }: RunningHeddle): Promise<string> {
  const id = "bench-tiny";
  const options = { threads: 1, max_sequences: 16, context_tokens: 2_048, kv_tokens: 32_768 };
  await api.serve({ id, source: "builtin://tiny", options }, 60_000);
  return id;
}

/** The role of a process of the cluster, from its program; `task` of all that jobs run. */
function roleOf(pid: number, root: number): string {
  if (pid === root) return "heddle up";
  const script = commandLine(pid).find((argument) => /\.(js|ts|mjs)$/.test(argument)) ?? "";
  if (/\/engine-process\.js$/.test(script)) return "engine";
  return /apps\/([a-z-]+)\/dist\/main\.js$/.exec(script)?.[1] ?? "task";
}
