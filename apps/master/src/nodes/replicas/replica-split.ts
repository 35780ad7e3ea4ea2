import type { DeploymentRecord } from "@heddle/control/state";
import { divisionOf, type StageCandidate, type StagedReplica } from "./staged-replica.ts";

/** Replicas that single workers hold, beside those that several divide. */
export interface WholeReplicas {
  readonly wanted: number;
  /** That can hold one. */
  readonly workers: ReadonlySet<string>;
}

/** How many replicas of a deployment workers divide. */
export interface ReplicaSplit {
  readonly divided: number;
  /** Undefined where all are divided, and where nothing is. */
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
): ReplicaSplit {
  const wanted = typeof record.replicas === "number" ? record.replicas : 1;
  const mode = divisionOf(record);
  if (mode === "whole") return ALL_WHOLE;
  if (mode === "sharded") return { divided: wanted, whole: undefined };
  const { key, weights } = record.spec;
  const bytes = weights?.sizeBytes ?? 0;
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
  if (count === 0 && !hasStages) return ALL_WHOLE;
  const hasWhole = count < wanted && fits.size > 0;
  return {
    divided: count,
    whole: hasWhole ? { wanted: wanted - count, workers: fits } : undefined,
  };
}

/** Whether the worker has the deployment's whole model. */
export function holdsWhole(node: StageCandidate["node"], deployment: string): boolean {
  const held = node.replica(deployment);
  return held !== undefined && held.stage === undefined && held.phase !== "unloading";
}
