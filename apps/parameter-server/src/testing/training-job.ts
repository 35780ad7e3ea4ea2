import { randomBytes, randomUUID } from "node:crypto";
import {
  connectParameters,
  type ParameterServerClient,
  type ParameterServerClientOptions,
} from "@heddle/parameters/parameter-server-client";
import type { ShardSetAccess } from "@heddle/parameters/shards/shard-set";
import type { ShardSetSpec } from "@heddle/parameters/shards/shard-spec";
import { credentials } from "@heddle/parameters/testing/server-processes";

/** Three tensors; no block divides the length of the first. */
export const SHAPES = [
  { name: "weight", shape: [37, 531], type: "f32" },
  { name: "bias", shape: [7], type: "f32" },
  { name: "gain", shape: [301], type: "f32" },
] as const;

const neverAborted = new AbortController().signal;
const clients: ParameterServerClient[] = [];

/** A new job's shards on these servers; plain SGD under bsp by default. */
export function jobOn(
  servers: readonly string[],
  options: Partial<ShardSetSpec> = {},
): ShardSetAccess & { readonly spec: ShardSetSpec } {
  const spec: ShardSetSpec = {
    jobId: `job-${randomUUID()}`,
    attempt: 1,
    parameters: SHAPES,
    servers,
    workers: 1,
    learningRate: 1,
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
    compression: "none",
    jobToken: randomBytes(32),
    ...options,
  };
  return { spec, credentials, signal: neverAborted };
}

/** A worker of the job in this process; closed by `closeClients`. */
export async function joinJob(
  job: ShardSetAccess,
  rank: number,
  options: Partial<ParameterServerClientOptions> = {},
): Promise<ParameterServerClient> {
  const client = await connectParameters({ ...job, rank, host: "127.0.0.1", ...options });
  clients.push(client);
  return client;
}

/** Tensors of the test's shapes, filled by a function of the position. */
export function tensors(fill: (at: number) => number) {
  return {
    weight: Float32Array.from({ length: 37 * 531 }, (_, at) => fill(at)),
    bias: Float32Array.from({ length: 7 }, (_, at) => fill(100_000 + at)),
    gain: Float32Array.from({ length: 301 }, (_, at) => fill(200_000 + at)),
  };
}

/** For `afterEach`. */
export async function closeClients(): Promise<void> {
  await Promise.all(clients.splice(0).map((client) => client.close()));
}
