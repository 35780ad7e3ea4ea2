import { fileURLToPath } from "node:url";
import { Child } from "./child-process.ts";
import type { LoadResult, LoadSpec } from "./load-generator.ts";

const program = fileURLToPath(new URL("./load-generator.ts", import.meta.url));

/** Generates load on a server from a separate process, pinned to a core. */
export async function runLoad(spec: LoadSpec, core: number, logFile: string): Promise<LoadResult> {
  const child = new Child({
    name: "load generator",
    command: process.execPath,
    args: [program, JSON.stringify(spec)],
    core,
    logFile,
  });
  const startMs = 10_000;
  const [line] = await child.line(/^\{.*\}$/, spec.warmupMs + spec.durationMs + 60_000 + startMs);
  await child.stop();
  return JSON.parse(line) as LoadResult;
}
