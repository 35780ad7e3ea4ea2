import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "../../support/child-process.ts";
import { benchFolder } from "../../support/command-line.ts";
import { BENCH_KV_TOKENS, PROMPT_TOKENS } from "../pipeline.ts";
import { rpcLibraries } from "./rpc-library.ts";

const START_MS = 60_000;
const RUN_MS = 600_000;

export interface RpcLoad {
  readonly modelFile: string;
  readonly servers: number;
  readonly sequences: readonly number[];
  readonly steps: number;
}

/** Where the libraries of ggml's RPC are; undefined, and a line that says why, where they cannot be built. */
export async function rpcPeer(): Promise<string | undefined> {
  try {
    return await rpcLibraries();
  } catch (error) {
    const [reason] = String(error).split("\n");
    console.log(
      `skipped: ggml's RPC cannot be built (npm, tar, git and g++ are needed): ${reason}`,
    );
    return undefined;
  }
}

/** Tokens a second for each number of sequences, of one model over servers with one thread each. */
export async function rpcRates(
  libraries: string,
  { servers: count, ...load }: RpcLoad,
): Promise<readonly number[]> {
  const servers: string[] = [];
  const children: Child[] = [];
  try {
    for (let i = 0; i < count; i++) {
      const address = `127.0.0.1:${await freePort()}`;
      const server = program("rpc-server", [libraries, address], i);
      children.push(server);
      await server.line(/^serving$/, START_MS);
      servers.push(address);
    }
    const sizes = { promptTokens: PROMPT_TOKENS, kvTokens: BENCH_KV_TOKENS };
    const asked = JSON.stringify({ libraries, servers, ...load, ...sizes });
    const client = program("rpc-client", [asked], count);
    children.push(client);
    const [text] = await client.line(/^\[.*\]$/, RUN_MS);
    return JSON.parse(text) as number[];
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}

function program(name: string, args: readonly string[], at: number): Child {
  const file = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  const logFile = join(benchFolder, `logs/${name}-${at}.log`);
  return new Child({ name, command: process.execPath, args: [file, ...args], logFile });
}
