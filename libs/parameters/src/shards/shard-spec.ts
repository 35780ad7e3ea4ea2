import { AppError } from "@heddle/base/errors";
import type { OpenShard, OpenShard__Output } from "@heddle/contracts/generated/heddle/v1/OpenShard";
import type { ConsistencyModel } from "@heddle/training/consistency/update-clock";
import type { TensorSpec } from "@heddle/training/executable";
import type { Optimizer } from "@heddle/training/optimizers/optimizer";
import { TOKEN_BYTES } from "../data-plane/data-frames.ts";
import {
  type Compression,
  type PullCompression,
  parseCompression,
  parsePullCompression,
} from "./compression.ts";

/** How the parameters of a job are stored and updated; the same for all its shards. */
export interface ShardSetSpec {
  readonly jobId: string;
  /** The fencing token: a call with a lower one is refused. */
  readonly attempt: number;
  /** In the model's order, which with the number of servers determines the plan. */
  readonly parameters: readonly TensorSpec[];
  /** gRPC addresses of the servers, by shard; a multiple of the fragments. */
  readonly servers: readonly string[];
  /** Parts of the model that are exchanged separately, each with its own shards; 1 where absent. */
  readonly fragments?: number | undefined;
  /** Ranks that push: worker processes, or nodes where the tasks of a node are one worker. */
  readonly workers: number;
  readonly optimizer: Optimizer;
  /** Multiplies the rate of a push: the outer rate of weave; else 1. */
  readonly learningRate: number;
  /** The largest norm of the mean gradient over all shards. */
  readonly maxGradientNorm?: number | undefined;
  readonly consistency: ConsistencyModel;
  /** For bsp: an update is made without workers that are later than this after the first part. */
  readonly stragglerMs?: number | undefined;
  readonly compression: Compression;
  /** The compression of pulls in bsp; `none` where absent. */
  readonly pullCompression?: PullCompression | undefined;
  /** 32 random bytes that data connections of this attempt must show. */
  readonly jobToken: Uint8Array;
}

/** How many fragments a job's model has. */
export function fragmentsOf({ fragments = 1 }: Pick<ShardSetSpec, "fragments">): number {
  return fragments;
}

/** One shard of a set. */
export interface ShardSpec extends ShardSetSpec {
  readonly shard: number;
  /** The ticket of the task that has opened it, for calls to other servers on behalf of the job. */
  readonly ticket?: string | undefined;
}

const MAX_WORKERS = 4096;
const MAX_SHARDS = 1024;
const MAX_TENSORS = 65_536;

export function encodeShard(spec: ShardSetSpec, shard: number): OpenShard {
  const { optimizer, consistency } = spec;
  return {
    id: { jobId: spec.jobId, attempt: spec.attempt, shard },
    parameters: spec.parameters.map(({ name, shape }) => ({ name, shape: [...shape] })),
    shards: spec.servers.length,
    optimizer: {
      ...optimizer,
      maxGradientNorm: spec.maxGradientNorm ?? 0,
      learningRate: spec.learningRate,
    },
    consistency: {
      model: consistency.kind,
      staleness: consistency.kind === "ssp" ? consistency.staleness : 0,
      stragglerMs: spec.stragglerMs ?? 0,
      compression: spec.compression,
      pullCompression: spec.pullCompression ?? "none",
    },
    workers: spec.workers,
    jobToken: Buffer.from(spec.jobToken),
    servers: [...spec.servers],
    fragments: fragmentsOf(spec),
  };
}

/** Throws an AppError `invalid_value` that names the field. */
export function decodeShard(message: OpenShard__Output | null): ShardSpec {
  const { id, optimizer, consistency } = message ?? {};
  if (!message || !id || !optimizer || !consistency) {
    throw refusal("a shard needs an id, an optimizer and a consistency model");
  }
  const { shards, workers, servers } = message;
  if (!/^[\w.-]{1,128}$/.test(id.jobId))
    throw refusal(
      `job_id "${id.jobId}" is not a valid id: give 1 to 128 letters, digits, ".", "_" or "-"`,
    );
  if (!inRange(shards, 1, MAX_SHARDS) || id.shard >= shards || servers.length !== shards) {
    throw refusal(`shard ${id.shard} of ${shards} shards with ${servers.length} servers`);
  }
  // Versions before fragments sent none.
  const fragments = message.fragments || 1;
  if (shards % fragments !== 0) throw refusal(`${shards} shards of ${fragments} fragments`);
  if (!inRange(workers, 1, MAX_WORKERS)) throw refusal(`workers is ${workers}: 1..${MAX_WORKERS}`);
  if (message.jobToken.length !== TOKEN_BYTES)
    throw refusal(`job_token needs ${TOKEN_BYTES} bytes`);
  const rate = optimizer.learningRate;
  if (!(rate > 0 && Number.isFinite(rate))) {
    throw refusal("optimizer.learning_rate must be a number above 0");
  }
  const limit = optimizer.maxGradientNorm;
  if (!(limit >= 0)) throw refusal("optimizer.max_gradient_norm must be above 0, or 0 for none");
  if (limit > 0 && fragments > 1) throw refusal("the norm of fragments is not known at one time");
  return {
    jobId: id.jobId,
    attempt: id.attempt,
    shard: id.shard,
    parameters: decodeParameters(message),
    servers,
    fragments,
    workers,
    optimizer: decodeOptimizer(optimizer),
    learningRate: optimizer.learningRate,
    maxGradientNorm: limit > 0 ? limit : undefined,
    consistency: decodeConsistency(consistency.model, consistency.staleness),
    stragglerMs: consistency.stragglerMs > 0 ? consistency.stragglerMs : undefined,
    compression: parseCompression(consistency.compression),
    pullCompression: decodePullCompression(consistency.pullCompression, consistency.model),
    jobToken: Uint8Array.from(message.jobToken),
  };
}

function decodeParameters({ parameters }: OpenShard__Output): TensorSpec[] {
  if (!inRange(parameters.length, 1, MAX_TENSORS)) {
    throw refusal(`${parameters.length} tensors: a job has 1..${MAX_TENSORS}`);
  }
  const names = new Set(parameters.map(({ name }) => name));
  if (names.size !== parameters.length) throw refusal("two tensors have one name");
  return parameters.map(({ name, shape }) => ({ name, shape, type: "f32" }));
}

function decodeOptimizer(
  message: NonNullable<OpenShard__Output["optimizer"]>,
): ShardSetSpec["optimizer"] {
  const { kind, momentum, nesterov, beta1, beta2, epsilon, weightDecay } = message;
  const check = (field: string, value: number, isGood: boolean) => {
    if (!isGood) throw refusal(`optimizer.${field} is ${value}, out of its range`);
  };
  switch (kind) {
    case "sgd":
      check("momentum", momentum, momentum >= 0 && momentum <= 1);
      return { kind, momentum, nesterov };
    case "adam":
    case "adamw":
      check("beta1", beta1, beta1 >= 0 && beta1 < 1);
      check("beta2", beta2, beta2 >= 0 && beta2 < 1);
      check("epsilon", epsilon, epsilon > 0 && Number.isFinite(epsilon));
      check("weight_decay", weightDecay, weightDecay >= 0 && Number.isFinite(weightDecay));
      return { kind, beta1, beta2, epsilon, weightDecay };
    default:
      throw refusal(`there is no optimizer "${kind}": use sgd, adam or adamw`);
  }
}

function decodeConsistency(model: string, staleness: number): ConsistencyModel {
  switch (model) {
    case "bsp":
    case "asp":
      return { kind: model };
    case "ssp":
      return { kind: model, staleness };
    default:
      throw refusal(`there is no consistency model "${model}": use bsp, ssp or asp`);
  }
}

/**
 * Under ssp and asp a worker skips versions, so that changes from one to the next are useless to
 * it.
 */
function decodePullCompression(text: string, model: string): PullCompression {
  const kind = parsePullCompression(text);
  if (kind === "none" || model === "bsp") return kind;
  throw refusal(`pull_compression ${kind} needs the consistency model bsp, not ${model}`);
}

function inRange(value: number, low: number, high: number): boolean {
  return value >= low && value <= high;
}

function refusal(message: string): AppError {
  return new AppError("invalid_value", message);
}
