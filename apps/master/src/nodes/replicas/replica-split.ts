import type { LlamaDeployment } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import type { WholeSize } from "./model-sizes.ts";
import {
  canHaveStage,
  divisionOf,
  type StageCandidate,
  type StagedReplica,
} from "./staged-replica.ts";

const BYTES_PER_MIB = 2 ** 20;

/** Replicas that single workers hold, beside those that several divide. */
export interface WholeReplicas {
  readonly wanted: number;
  /** That can hold one. */
  readonly workers: ReadonlySet<string>;
}

/** How many replicas of a deployment workers divide. */
export interface ReplicaSplit {
  readonly divided: number;
  /** Undefined where all are divided, and where every worker may have a whole one. */
  readonly whole: WholeReplicas | undefined;
}

const ALL_WHOLE: ReplicaSplit = { divided: 0, whole: undefined };

/**
 * Workers divide the replicas that no single one can hold. Those that they have divided stay so until
 * whole ones are ready in their place.
 */
export function splitReplicas(
  record: DeploymentRecord,
  candidates: readonly StageCandidate[],
  divided: readonly StagedReplica[],
  size: WholeSize = {},
): ReplicaSplit {
  const all = allDivided(record);
  const { divided: wanted } = all;
  const mode = divisionOf(record);
  if (mode === "whole" || size.refusal !== undefined) return ALL_WHOLE;
  if (mode === "sharded") return all;
  const { key } = record.spec;
  const bytes = neededBytes(record.spec, size, candidates);
  const stages = new Set(divided.flatMap(({ parts }) => parts.map(({ node }) => node)));
  const holders = candidates.filter(({ node }) => holdsWhole(node, key));
  const isKnown = candidates.some(({ memoryBytes }) => (memoryBytes(key) ?? 0) > 0);
  const canHold = ({ node, leaving, memoryBytes }: StageCandidate) =>
    !leaving && !stages.has(node.id) && (memoryBytes(key) ?? 0) >= bytes;
  const fits = new Set([...holders, ...candidates.filter(canHold)].map(({ node }) => node.id));
  const ready = holders.filter(({ node }) => node.replica(key)?.phase === "ready").length;
  const tooMany = isKnown ? Math.max(0, wanted - fits.size) : 0;
  const kept = Math.min(divided.length, wanted - Math.min(wanted, ready));
  const count = Math.max(tooMany, kept);
  // A stage that is not unloaded yet is no whole replica.
  const hasStages = candidates.some(({ node }) => node.replica(key)?.stage);
  const isAnywhere =
    !isKnown ||
    typeof record.replicas !== "number" ||
    candidates.every(({ node }) => fits.has(node.id));
  if (count === 0 && !hasStages && isAnywhere) return ALL_WHOLE;
  const hasWhole = count < wanted && fits.size > 0;
  return {
    divided: count,
    whole: hasWhole ? { wanted: wanted - count, workers: fits } : undefined,
  };
}

export function allDivided({ replicas }: DeploymentRecord): ReplicaSplit {
  return { divided: typeof replicas === "number" ? replicas : 1, whole: undefined };
}

/** A single worker takes what it holds the weights of: no other one could have a stage. */
function neededBytes(
  { weights }: Pick<DeploymentRecord["spec"], "weights">,
  { bytes = 0 }: WholeSize,
  candidates: readonly StageCandidate[],
): number {
  const able = candidates.filter(({ leaving, node }) => !leaving && canHaveStage(node)).length;
  return Math.max(weights?.sizeBytes ?? 0, able > 1 ? bytes : 0);
}

/** Why workers do not divide a model whose placement is open; undefined where they do. */
export function wholeReason(
  spec: LlamaDeployment,
  { divided }: ReplicaSplit,
  size: WholeSize = {},
  candidates: readonly StageCandidate[],
): string | undefined {
  if (size.refusal !== undefined) return size.refusal;
  if (divided > 0) return undefined;
  const { sizeBytes = 0 } = spec.weights;
  const bytes = size.bytes ?? sizeBytes;
  const holder = candidates.find(({ memoryBytes }) => (memoryBytes(spec.key) ?? 0) >= bytes);
  if (!holder)
    return candidates.length > 1 ? undefined : "no second worker could have a stage of it";
  const has = Math.floor((holder.memoryBytes(spec.key) ?? 0) / BYTES_PER_MIB);
  const needs = Math.ceil(bytes / BYTES_PER_MIB);
  const what = size.bytes === undefined ? "for its weights" : "with its cache and its process";
  return `one worker can hold it: it needs ${needs} MiB ${what}, and ${holder.node.register.name} has ${has} MiB`;
}

/** Whether the worker has the deployment's whole model. */
export function holdsWhole(node: StageCandidate["node"], deployment: string): boolean {
  const held = node.replica(deployment);
  return held !== undefined && held.stage === undefined && held.phase !== "unloading";
}
