import type { ModelStage } from "@heddle/contracts/models/model-division";

/** What is known of the workers that have the other stages. */
export interface StageWorkers {
  /** Whether a node's reports arrive. */
  readonly reports: (node: string) => boolean;
  /** As people know it. */
  readonly nameOf: (node: string) => string;
}

/** The first worker with a stage of the replica that does not report, and what to do about it. */
export function silentStage(
  { peers }: ModelStage,
  { reports, nameOf }: StageWorkers,
): { readonly node: string; readonly message: string } | undefined {
  const peer = peers.find(({ node }) => !reports(node));
  if (!peer) return undefined;
  const { node, from, to } = peer;
  const message = `worker ${nameOf(node)} (${node}), which has blocks ${from} to ${to - 1} of the model, does not report: resume or restart it, or start another worker`;
  return { node, message };
}
