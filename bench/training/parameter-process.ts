import { randomBytes, randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectParameters } from "@heddle/parameters/parameter-server-client";
import { openShards, type ShardSetAccess } from "@heddle/parameters/shards/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import { Child } from "../support/child-process.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { processTree } from "../support/proc-files.ts";

const credentials = {
  clusterToken: "the token of this benchmark",
  node: { role: "worker", name: "trainer" },
} as const;

/** One of our parameter servers. */
export interface ParameterProcess {
  /** The address of its gRPC server. */
  readonly address: string;
  readonly pid: number;
}

/** Starts one of our parameter servers. */
export async function startParameterProcess(): Promise<ParameterProcess> {
  const data = join(benchFolder, `parameters-${randomUUID()}`);
  mkdirSync(data, { recursive: true });
  const tokenFile = join(data, "token");
  writeFileSync(tokenFile, credentials.clusterToken);
  const main = join(repositoryRoot, "apps/parameter-server/dist/main.js");
  const flags = ["--data", data, "--masters", "127.0.0.1:9", "--cluster-token-file", tokenFile];
  // The server ends when its input does, so that it needs a shell that keeps it open.
  const child = new Child({
    name: "our parameter server",
    command: process.execPath,
    args: [join(repositoryRoot, "bench/training/keep-input-open.mjs"), main, ...flags],
    logFile: join(benchFolder, "parameter-server.log"),
  });
  const address = (await child.line(/"grpc":"([^"]+)"/, 20_000))[1] ?? "";
  // The last of its tree, after those that keep its input open.
  return { address, pid: processTree(child.pid).at(-1) ?? child.pid };
}

/** Opens a new job's shards. */
export async function openJob(
  spec: Omit<ShardSetSpec, "jobId" | "attempt" | "jobToken">,
): Promise<ShardSetAccess> {
  const jobId = `bench-${randomUUID()}`;
  const full = { ...spec, jobId, attempt: 1, jobToken: randomBytes(32) };
  const access = { spec: full, credentials, signal: new AbortController().signal };
  await openShards(access);
  return access;
}

/** A worker of the job in this process, over these ways. */
export function joinBenchJob(
  access: ShardSetAccess,
  rank: number,
  paths?: ("unix" | "tcp" | "grpc")[],
) {
  return connectParameters({ ...access, rank, host: "127.0.0.1", paths });
}
