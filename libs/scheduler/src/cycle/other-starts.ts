import { type Ledger, locate } from "../cluster/ledger.ts";
import { runtimeBoundMs } from "../cluster/precedence.ts";
import type { Plan, QueuedJob, RunningJob } from "../model.ts";
import type { Release } from "./releases.ts";
import { gangOf, type SchedulingCycle } from "./scheduling-cycle.ts";

/** A job that holds something from now on, or did already, and what it gives back when. */
export interface Holder {
  readonly job: (RunningJob | QueuedJob) & { readonly startedAtMs: number };
  /** Its latest end. */
  readonly release: Release;
  /** Its end by its progress; the latest where that tells nothing. */
  readonly expectedEndMs: number;
}

/** One that the plan starts. */
export interface StartedHolder extends Holder {
  readonly job: QueuedJob & { readonly startedAtMs: number };
}

/** The cluster as one queued job finds it under a plan: what the plan starts besides has started. */
export interface OtherStarts {
  /** What is free. */
  readonly ledger: Ledger;
  readonly running: readonly Holder[];
  readonly started: readonly StartedHolder[];
}

/** A started job is looked at without itself. */
export function withOtherStarts(
  round: SchedulingCycle,
  plan: Plan,
  { id }: QueuedJob,
): OtherStarts {
  const { layout, standing, releases } = round;
  const { nowMs, settings, queue } = standing;
  const ledger = layout.free.clone();
  const jobs = new Map(queue.map((job) => [job.id, job]));
  const started: StartedHolder[] = [];
  for (const { jobId, placements } of plan.starts) {
    const job = jobs.get(jobId);
    // One that waits no more holds its places already, where the plan is older than the standing.
    if (jobId === id || !job) continue;
    const { shape, shared: wanted } = gangOf(standing, job);
    const tasks = [...locate(placements, layout.roster)];
    for (const { node, devices } of tasks) ledger.take(node, shape, devices);
    const shared = ledger.takeShared(wanted);
    const expectedEndMs = nowMs + runtimeBoundMs(job, settings);
    const release = { atMs: expectedEndMs, shape, tasks, shared };
    started.push({ job: { ...job, startedAtMs: nowMs }, release, expectedEndMs });
  }
  const startMs = new Map(plan.reservations.map(({ jobId, startAtMs }) => [jobId, startAtMs]));
  const leavesByMs = new Map(
    plan.preemptions.map(({ victimId, forJobId }) => [victimId, startMs.get(forJobId)]),
  );
  const running = [...layout.running.values()].map((job) => {
    const known = releases.get(job.id)!;
    const latestMs = Math.min(known.atMs, leavesByMs.get(job.id) ?? Number.POSITIVE_INFINITY);
    const expectedEndMs = Math.max(nowMs, Math.min(latestMs, job.expectedEndMs ?? latestMs));
    return { job, release: { ...known, atMs: latestMs }, expectedEndMs };
  });
  return { ledger, running, started };
}
