import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "../../support/child-process.ts";
import { benchFolder } from "../../support/command-line.ts";
import { BENCH_KV_TOKENS, PROMPT_TOKENS } from "../pipeline.ts";
import type { RatedServer } from "../rated-rounds.ts";
import { rpcLibraries } from "./rpc-library.ts";

const START_MS = 60_000;
const RUN_MS = 600_000;

interface RpcModel {
  readonly name: string;
  readonly modelFile: string;
  readonly servers: number;
  readonly maxSequences: number;
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

/** One model over servers of ggml's RPC, with one thread each. */
export class RpcModelPeer implements RatedServer {
  readonly name: string;
  readonly #client: Child;
  #nextId = 1;

  private constructor(name: string, client: Child) {
    this.name = name;
    this.#client = client;
  }

  static async open(
    libraries: string,
    { name, servers: count, modelFile, maxSequences }: RpcModel,
  ): Promise<RpcModelPeer> {
    const servers: string[] = [];
    for (let i = 0; i < count; i++) {
      const address = `127.0.0.1:${await freePort()}`;
      const server = program("rpc-server", [libraries, address], i);
      await server.line(/^serving$/, START_MS);
      servers.push(address);
    }
    const sizes = { maxSequences, promptTokens: PROMPT_TOKENS, kvTokens: BENCH_KV_TOKENS };
    const client = program(
      "rpc-client",
      [JSON.stringify({ libraries, servers, modelFile, ...sizes })],
      count,
    );
    await client.line(/^loaded$/, START_MS);
    return new RpcModelPeer(name, client);
  }

  async rate(sequences: number, steps: number): Promise<number> {
    const id = this.#nextId++;
    this.#client.writeLine(`${id} ${sequences} ${steps}`);
    const [, perSecond] = await this.#client.line(new RegExp(`^rate ${id} (.*)$`), RUN_MS);
    return Number(perSecond);
  }

  /** Its processes end with the benchmark. */
  async close(): Promise<void> {
    await this.#client.stop();
  }
}

function program(name: string, args: readonly string[], at: number): Child {
  const file = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  const logFile = join(benchFolder, `logs/${name}-${at}.log`);
  const command = process.execPath;
  return new Child({ name, command, args: [file, ...args], logFile, input: true });
}
