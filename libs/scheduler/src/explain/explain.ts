import { countRejected, type NodeFilter } from "../cluster/eligibility.ts";
import { withOtherStarts } from "../cycle/other-starts.ts";
import { gangOf, openCycle, type SchedulingSnapshot } from "../cycle/scheduling-cycle.ts";
import type { Blocker, Plan, QueuedJob } from "../model.ts";
import { gangFits, tasksThatFit } from "../placement/gang.ts";
import { type StartEstimate, startEstimate } from "./start-estimate.ts";

/** Everything that the API tells about a job that has not started. */
export interface Explanation {
  readonly jobId: string;
  /** Empty only for a job that the plan starts. */
  readonly blockers: readonly Blocker[];
  readonly nodes: number;
  /** Nodes rejected by each static filter; a node counts at the first that rejects it. */
  readonly rejectedByFilter: Readonly<Partial<Record<NodeFilter, number>>>;
  /** Nodes that pass the filters and have too little free for one task. */
  readonly rejectedByCapacity: number;
  /** Tasks of the gang that would fit now. */
  readonly tasksThatFit: number;
  readonly start: StartEstimate;
}

/**
 * Explains one queued job under the latest plan, made on this standing or not long before. Pure, and
 * leaves the layout as it was.
 */
export function explain(standing: SchedulingSnapshot, plan: Plan, job: QueuedJob): Explanation {
  const round = openCycle(standing);
  const gang = gangOf(round.standing, job);
  const others = withOtherStarts(round, plan, job);
  const start = startEstimate(round, plan, { job, gang, others });
  const { ledger } = others;
  const eligible = [...ledger.nodes.keys()].filter((node) => gang.shape.eligible[node] === 1);
  return {
    jobId: job.id,
    blockers: plan.pending.find(({ jobId }) => jobId === job.id)?.blockers ?? [],
    nodes: ledger.roster.size,
    rejectedByFilter: Object.fromEntries(countRejected(ledger.roster, gang.shape)),
    rejectedByCapacity: eligible.filter((node) => !ledger.fits(node, gang.shape)).length,
    tasksThatFit: tasksThatFit(ledger, gang),
    start,
  };
}

/**
 * Tells of variants of a queued job whether they would start on what the plan leaves, by what is
 * free and what quotas leave of it: everything but the order of the queue.
 */
export function variantFitter(
  standing: SchedulingSnapshot,
  plan: Plan,
  job: QueuedJob,
): (variant: QueuedJob) => boolean {
  const round = openCycle(standing);
  const { ledger, started } = withOtherStarts(round, plan, job);
  for (const { job: other } of started) round.admission.charge(other);
  return (variant) =>
    round.admission.quota(variant).length === 0 &&
    gangFits(ledger, gangOf(round.standing, variant));
}
