import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import type { ChatServer } from "../support/chat-client.ts";
import { Child } from "../support/child-process.ts";
import { benchFolder } from "../support/command-line.ts";
import { heddleUp, type RunningHeddle } from "../support/heddle-up.ts";
import { originOf, waitForServer } from "../support/origin.ts";
import type { WatchedProcess } from "../support/process-sampler.ts";

/** Both sides serve the same file with the same threads and cache size. */
interface Serving {
  readonly modelFile: string;
  readonly threads: number;
}

/** A server under test; its processes are measured if they are local. */
export interface InferenceServer extends ChatServer {
  processes(): readonly WatchedProcess[];
}

const maxSequences = 16;
const tokensPerSequence = 2_048;

/** Our whole path, started as a user does, with the model registered over its API. */
export async function startOurs(
  serving: Serving,
): Promise<{ readonly server: InferenceServer; readonly cluster: RunningHeddle }> {
  const cluster = await heddleUp(["--profile", "tiny"]);
  const model = "bench-model";
  await cluster.api.serve(
    {
      id: model,
      source: pathToFileURL(serving.modelFile).href,
      options: {
        threads: serving.threads,
        max_sequences: maxSequences,
        context_tokens: tokensPerSequence,
        kv_tokens: maxSequences * tokensPerSequence,
      },
    },
    120_000,
  );
  const key = await cluster.api.createLimitedKey();
  const server = oursAt(cluster.api.url, key, model);
  return { server: { ...server, processes: () => cluster.processes() }, cluster };
}

export function oursAt(url: string, key: string, model: string): InferenceServer {
  return {
    name: "Heddle",
    origin: originOf(url),
    path: "/api/v1/chat/completions",
    headers: { authorization: `Bearer ${key}` },
    model,
    processes: () => [],
  };
}

/** Any running OpenAI-compatible server; its URL ends before `/v1`. */
export function peerAt(url: string, model: string): InferenceServer {
  const path = "/v1/chat/completions";
  return { name: "peer", origin: originOf(url), path, headers: {}, model, processes: () => [] };
}

/** llama-server with its defaults for all but threads, cache size and these flags. */
export async function startLlamaServer(
  program: string,
  { modelFile, threads }: Serving,
  flags: readonly string[] = [],
): Promise<InferenceServer> {
  const port = await freePort();
  const child = new Child({
    name: "llama-server",
    command: program,
    args: [
      "-m",
      modelFile,
      "--host",
      "127.0.0.1",
      "--port",
      String(port),
      "-t",
      String(threads),
      "-tb",
      String(threads),
      "-ngl",
      "0",
      "-np",
      String(maxSequences),
      "-c",
      String(maxSequences * tokensPerSequence),
      "-fa",
      "on",
      "--no-kv-unified",
      ...flags,
    ],
    logFile: join(benchFolder, `logs/llama-server-${port}.log`),
  });
  const url = `http://127.0.0.1:${port}`;
  // One that refuses its flags ends at once.
  await Promise.race([waitForServer(`${url}/health`, 120_000), child.ended()]);
  return {
    ...peerAt(url, "bench-model"),
    name: "llama-server",
    processes: () => [{ pid: child.pid, role: "llama-server" }],
  };
}
