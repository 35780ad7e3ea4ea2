import type { ReplicaStatus } from "@heddle/contracts/engine";
import { CUT_MS } from "./stage-cuts.ts";

/** What is known of the workers that have the other stages. */
export interface StageWorkers {
  /** Whether a node's reports arrive. */
  readonly reports: (node: string) => boolean;
  /** The name that users see. */
  readonly nameOf: (node: string) => string;
}

/** A worker with a stage for which the others wait. */
interface StoppedStage {
  readonly node: string;
  /** What to do about it. */
  readonly message: string;
  /** For how long the last stage's worker has not reached it; absent where it does not report. */
  readonly cutMs?: number | undefined;
}

/** The first worker with a stage that does not report, or that the worker with the last one does not reach. */
export function stoppedStage(
  lastNode: string,
  { stage, unreachable = [] }: Pick<ReplicaStatus, "stage" | "unreachable">,
  { reports, nameOf }: StageWorkers,
): StoppedStage | undefined {
  const peers = stage?.peers ?? [];
  const named = (node: string) => `worker ${nameOf(node)} (${node})`;
  const silent = peers.find(({ node }) => !reports(node));
  if (silent) {
    const { node, from, to } = silent;
    const message = `${named(node)}, which has blocks ${from} to ${to - 1} of the model, does not report: resume or restart it, or start another worker`;
    return { node, message };
  }
  for (const { node, address, from, to } of peers) {
    const cutMs = unreachable.find((each) => each.node === node)?.forMs ?? 0;
    if (cutMs < CUT_MS) continue;
    const message = `${named(lastNode)}, which has the last blocks of the model, does not reach ${named(node)} at ${address}, which has blocks ${from} to ${to - 1}: let them reach each other, or start another worker`;
    return { node, message, cutMs };
  }
  return undefined;
}
