import { ACCEPTED, type ControlReply, refuse } from "../../command.ts";
import type { PlaceStagesCommand } from "../records/commands.ts";
import { replicaKey } from "../records/records.ts";
import { stageClaim } from "../scheduling/replica-claims.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";
import { QuotaCheck } from "./quota-check.ts";

/** Reserves the GPUs of all these stages, or of none. */
export function placeStages(
  change: JobsTransaction,
  { deployment, places, limits }: PlaceStagesCommand,
): ControlReply {
  const { state, index, now } = change;
  const claim = stageClaim(state, deployment, places.length);
  if (!claim) return refuse("conflict", `workers do not divide ${deployment} over GPUs`);
  if (places.length === 0 || new Set(places.map(({ nodeId }) => nodeId)).size < places.length) {
    return refuse("invalid_value", "stages of a model go to different nodes");
  }
  const held = places.find(({ nodeId }) => state.replicas.has(replicaKey({ deployment, nodeId })));
  if (held) return refuse("conflict", `${deployment} has GPUs of ${held.nodeId} already`);
  const why =
    new QuotaCheck(change, limits).claimRefusal(claim) ??
    index.capacity.take(claim.request, places.length, places, 1);
  if (why) {
    const what = why === "quota" ? "the quota of `default` is used" : `others have them (${why})`;
    return refuse("conflict", `the stages of ${deployment} get no GPUs now: ${what}`);
  }
  for (const { nodeId, devices } of places) {
    change.placeReplica({ deployment, nodeId, devices, grantedAtMs: now.atMs, stage: true });
  }
  return ACCEPTED;
}
