import type { Steps } from "@heddle/base/async/steps";
import { countRejected, type NodeFilter } from "../cluster/eligibility.ts";
import { withOtherStarts } from "../cycle/other-starts.ts";
import { gangOf, openCycle, type SchedulingSnapshot } from "../cycle/scheduling-cycle.ts";
import type { Blocker, Plan, QueuedJob } from "../model.ts";
import { gangFits, tasksThatFit } from "../placement/gang.ts";
import { isSameEntry } from "../plan-entry.ts";
import { type StartEstimate, startEstimate } from "./start-estimate.ts";

/** All that the API shows of a job that has not started. */
export interface Explanation {
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
 * Explains one queued job under the latest plan, made on this snapshot or shortly before. Pure; the
 * view must not change between two steps.
 */
export function* explain(
  snapshot: SchedulingSnapshot,
  plan: Plan,
  job: QueuedJob,
): Steps<Explanation> {
  const cycle = openCycle(snapshot);
  const gang = yield* gangOf(snapshot, job);
  const others = yield* withOtherStarts(cycle, plan, job);
  const start = yield* startEstimate(cycle, plan, { job, gang, others });
  const { ledger } = others;
  yield;
  const eligible = [...ledger.nodes.keys()].filter((node) => gang.shape.eligible[node] === 1);
  const rejectedByCapacity = eligible.filter((node) => !ledger.fits(node, gang.shape)).length;
  yield;
  return {
    blockers: plan.pending.find(({ entry }) => isSameEntry(entry, job.entry))?.blockers ?? [],
    nodes: ledger.roster.size,
    rejectedByFilter: Object.fromEntries(countRejected(ledger.roster, gang.shape)),
    rejectedByCapacity,
    tasksThatFit: tasksThatFit(ledger, gang),
    start,
  };
}

/** Whether a variant of a job fits in what is free. */
export type VariantFitter = (variant: QueuedJob) => Steps<boolean>;

/**
 * Tests variants of a queued job on what the plan leaves of nodes and quotas. The order of the
 * queue does not count.
 */
export function* variantFitter(
  snapshot: SchedulingSnapshot,
  plan: Plan,
  job: QueuedJob,
): Steps<VariantFitter> {
  const cycle = openCycle(snapshot);
  const { ledger, started } = yield* withOtherStarts(cycle, plan, job);
  for (const { job: other } of started) cycle.admission.charge(other);
  return function* fits(variant) {
    if (cycle.admission.quota(variant).length > 0) return false;
    return gangFits(ledger, yield* gangOf(snapshot, variant));
  };
}
