import type { DeploymentSpec } from "@heddle/contracts/engine";
import { PLACES_STAGES, versionOf } from "../../cluster-version.ts";
import type { JobsState, ReplicaResources } from "../records/records.ts";

const BYTES_PER_GB = 1e9;

/** The deployment of a replica's key, or of a stage's, which has a `#` behind it. */
export function deploymentOf(key: string): string {
  return key.includes("#") ? key.slice(0, key.indexOf("#")) : key;
}

/** Why workers do not divide a deployment that leaves the placement open; undefined if they may. */
export function undividedReason(spec: DeploymentSpec): string | undefined {
  if (spec.engine !== "llama" || (spec.placement?.mode ?? "auto") !== "auto") return undefined;
  const { kvDtype = "f16", decoding, gpuLayers = -1 } = spec.options;
  if (kvDtype !== "f16") return "the caches of stages are `f16`, and `options.kv_dtype` is not";
  if ((decoding?.deterministic ?? "request") !== "request") {
    return "stages support `options.decoding.deterministic` of `request` alone";
  }
  if (gpuLayers >= 0) return "`options.gpu_layers` leaves a part of it to the CPU";
  if (spec.weights.sizeBytes !== undefined) return undefined;
  return "its size is not known: register it with `weights.size_bytes`";
}

/**
 * Whether workers divide a deployment that needs GPUs, as the state says it. They do where that is
 * asked, or no node's GPUs have the memory for the weights alone.
 */
export function isDividedOnGpus(
  { nodes, cluster }: Pick<JobsState, "nodes" | "cluster">,
  spec: DeploymentSpec,
  { gpuCount, gpuTypes }: ReplicaResources,
): boolean {
  if (spec.engine !== "llama" || versionOf({ cluster }) < PLACES_STAGES) return false;
  const { mode = "auto" } = spec.placement ?? {};
  if (mode !== "auto") return mode === "sharded";
  if (undividedReason(spec) !== undefined) return false;
  const { sizeBytes = 0 } = spec.weights;
  let hasGpus = false;
  for (const { offer } of nodes.values()) {
    const isOther = gpuTypes.length > 0 && !gpuTypes.includes(offer.gpuType);
    if (offer.gpuCount < gpuCount || isOther) continue;
    hasGpus = true;
    // A node says the memory of a GPU in whole GB, or not at all.
    const mostBytes = gpuCount * (offer.gpuMemoryGb + 1) * BYTES_PER_GB;
    if (offer.gpuMemoryGb === 0 || sizeBytes < mostBytes) return false;
  }
  return hasGpus;
}
