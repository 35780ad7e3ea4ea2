import type { Explanation } from "@heddle/scheduler/explain";
import type { Blocker } from "@heddle/scheduler/model";

/** Why a job waits, as the API shows it; times are ISO 8601. */
export function viewExplanation(explanation: Explanation) {
  const { blockers, nodes, start, changes } = explanation;
  return {
    blockers: blockers.map(viewBlocker),
    nodes: {
      total: nodes,
      rejected: explanation.rejectedByFilter,
      rejected_by_capacity: explanation.rejectedByCapacity,
    },
    tasks_that_fit: explanation.tasksThatFit,
    start_estimate: {
      earliest: isoOrNull(start.earliestMs),
      likely: isoOrNull(start.likelyMs),
      latest: isoOrNull(start.latestMs),
    },
    changes,
  };
}

export function viewBlocker(blocker: Blocker) {
  return { ...blocker, message: blockerText(blocker) };
}

/** A blocker in words: `InsufficientGpu: gpu_milli 8000 requested, 2000 free of 4000`. */
export function blockerText({ reason, resource, requested, free, limit }: Blocker): string {
  return `${reason}: ${resource} ${requested} requested, ${free} free of ${limit}`;
}

/** A time as ISO 8601 UTC; null where there is none. */
export function isoOrNull(atMs: number | undefined): string | null {
  return atMs === undefined || !Number.isFinite(atMs) ? null : new Date(atMs).toISOString();
}
