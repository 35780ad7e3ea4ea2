import { AppError } from "@heddle/base/errors";
import type { SchedulingDecision } from "@heddle/contracts/api/history/state";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { waitingEntry } from "@heddle/control/jobs/records/recovery";
import { tasksOf } from "@heddle/control/jobs/scheduling/scheduling-input";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import { isSameEntry } from "@heddle/scheduler/plan-entry";
import { viewExplanation } from "../../orchestration/scheduling/explanation-view.ts";
import { JobExplainer } from "../../orchestration/scheduling/job-explainer.ts";
import { PlanCache } from "../../orchestration/scheduling/plan-cache.ts";
import { SchedulerCache } from "../../orchestration/scheduling/scheduler-cache.ts";
import { WAITING } from "../jobs/job-access.ts";

type Decision = Omit<SchedulingDecision, "at" | "time" | "first_kept">;

/** What the scheduler decides of a job with that state, at the time of its last change. */
export async function pastDecision(
  { state, jobs, logTimeMs }: Pick<ReplicatedControl, "state" | "jobs" | "logTimeMs">,
  at: number,
  id: string,
): Promise<Decision> {
  const job = state.jobs.get(id);
  if (!job) throw new AppError("not_found", `There was no job ${id} at position ${at}.`);
  const past = { state, jobs, appliedIndex: at };
  const cache = new SchedulerCache(past, undefined, () => logTimeMs);
  const plans = new PlanCache(cache);
  const explainer = new JobExplainer(past, cache, plans);
  const waits = WAITING.has(job.state);
  const explanation = waits ? await explainer.explain(job) : undefined;
  return cache.work.run(function* () {
    const { plan } = yield* plans.latest(at);
    const { queue, settings } = cache.snapshot(logTimeMs);
    const entry = waitingEntry(job);
    const position = queue.findIndex((each) => isSameEntry(each.entry, entry));
    const start = waits ? plan.starts.find((each) => isSameEntry(each.entry, entry)) : undefined;
    const nodes = [...state.nodes.values()];
    return {
      object: "scheduling_decision" as const,
      job: id,
      state: job.state,
      verdict: start ? ("starts" as const) : verdictOf(job, waits),
      placement: start
        ? start.placements.map(({ nodeId: node, devices }, rank) => ({ rank, node, devices }))
        : tasksOf(state, job).map(({ rank, nodeId: node, devices }) => ({ rank, node, devices })),
      inputs: {
        nodes: nodes.length,
        ready_nodes: nodes.filter((each) => each.state === "ready").length,
        queued: queue.length,
        position: position < 0 ? null : position + 1,
        max_concurrent_jobs: settings.maxConcurrentJobs,
        overcommit_ratio: settings.overcommitRatio,
        strategy: settings.queues[job.queue]?.strategy ?? settings.defaultStrategy,
      },
      explanation: explanation && !start ? viewExplanation(explanation) : null,
    };
  });
}

function verdictOf({ endedAtMs }: JobRecord, waits: boolean): "waits" | "placed" | "ended" {
  if (endedAtMs !== undefined) return "ended";
  return waits ? "waits" : "placed";
}
