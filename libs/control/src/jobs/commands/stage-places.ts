import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import type { ClaimStagesCommand, PlaceStagesCommand } from "../records/commands.ts";
import { type NodeRecord, replicaKey } from "../records/records.ts";
import { deploymentOf } from "../scheduling/divided-models.ts";
import { dividesGpus, stageClaim } from "../scheduling/replica-claims.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { QuotaCheck } from "./quota-check.ts";

/** Nodes of which any may have a stage that waits for GPUs. */
export const MAX_CLAIM_NODES = 64;

/** Stages of a deployment queue for GPUs. */
export function claimStages(
  { state }: JobsTransaction,
  { deployment, claim }: ClaimStagesCommand,
): ControlReply {
  if (!claim) {
    state.stageClaims.delete(deployment);
    return ACCEPTED;
  }
  if (!dividesGpus(state, deployment)) return notDivided(deployment);
  const { stages, nodes } = claim;
  const areNodes = nodes.length <= MAX_CLAIM_NODES && new Set(nodes).size === nodes.length;
  if (!areNodes || !Number.isSafeInteger(stages) || stages < 1 || stages > nodes.length) {
    const message = `each stage needs another node, of at most ${MAX_CLAIM_NODES}: got ${stages} stages and ${nodes.length} nodes`;
    return refuse("invalid_value", message);
  }
  state.stageClaims.set(deployment, claim);
  return ACCEPTED;
}

function notDivided(deployment: string): ControlReply {
  return refuse("conflict", `workers do not divide ${deployment} over GPUs`);
}

/** Reserves the GPUs of all these stages, or of none. */
export function placeStages(
  change: JobsTransaction,
  { deployment, places, limits }: PlaceStagesCommand,
): ControlReply {
  const { state, index, now } = change;
  const claim = stageClaim(state, deployment, places.length);
  if (!claim) return notDivided(deployment);
  if (places.length === 0 || new Set(places.map(({ nodeId }) => nodeId)).size < places.length) {
    return refuse("invalid_value", "stages of a model go to different nodes");
  }
  const held = places.find(({ nodeId }) => state.replicas.has(replicaKey({ deployment, nodeId })));
  if (held) return refuse("conflict", `${deployment} has GPUs of ${held.nodeId} already`);
  const giveBack = takeLeftStages(change, deployment, places);
  const why =
    new QuotaCheck(change, limits).claimRefusal(claim) ??
    index.capacity.take(claim.request, places.length, places, 1);
  if (why) {
    giveBack();
    const what = why === "quota" ? "the quota of `default` is used" : `others have them (${why})`;
    return refuse("conflict", `the stages of ${deployment} get no GPUs now: ${what}`);
  }
  for (const { nodeId, devices } of places) {
    change.placeReplica({ deployment, nodeId, devices, grantedAtMs: now.atMs, stage: true });
  }
  return ACCEPTED;
}

/**
 * Frees the GPUs that these nodes report for stages of the deployment without a place, as after the
 * node was lost. Returns what reverts it.
 */
function takeLeftStages(
  change: JobsTransaction,
  deployment: string,
  places: PlaceStagesCommand["places"],
): () => void {
  const before: NodeRecord[] = [];
  for (const { nodeId } of places) {
    const node = change.state.nodes.get(nodeId);
    const others = node?.serving.filter(({ deployment: key }) => deploymentOf(key) !== deployment);
    if (!node || !others || others.length === node.serving.length) continue;
    before.push(node);
    change.putNode({ ...node, serving: others });
  }
  return () => {
    for (const node of before) change.putNode(node);
  };
}
