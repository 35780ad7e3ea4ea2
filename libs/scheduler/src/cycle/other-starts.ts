import type { Steps } from "@heddle/base/async/steps";
import { type Ledger, locate } from "../cluster/ledger.ts";
import { runtimeBoundMs } from "../cluster/precedence.ts";
import type { Plan, QueuedJob, RunningJob } from "../model.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import type { Release } from "./releases.ts";
import { gangOf, type SchedulingCycle } from "./scheduling-cycle.ts";

/** Running jobs that one step processes. */
const JOBS_PER_STEP = 2_048;

/** A job that holds resources now, or will as soon as the plan is applied. */
export interface Holder {
  readonly job: (RunningJob | QueuedJob) & { readonly startedAtMs: number };
  /** At its latest end. */
  readonly release: Release;
  /** The end by its progress; the latest end if it reports none. */
  readonly expectedEndMs: number;
}

/** A job that the plan starts. */
export interface StartedHolder extends Holder {
  readonly job: QueuedJob & { readonly startedAtMs: number };
}

/** The cluster at one queued job's turn, with the plan's other starts applied. */
export interface OtherStarts {
  /** What is free. */
  readonly ledger: Ledger;
  readonly running: readonly Holder[];
  readonly started: readonly StartedHolder[];
}

/** The job's own start, if the plan has one, is excluded. */
export function* withOtherStarts(
  cycle: SchedulingCycle,
  plan: Plan,
  job: QueuedJob,
): Steps<OtherStarts> {
  const ledger = cycle.view.free.clone();
  const started = yield* startedHolders(cycle, plan, job, ledger);
  const running = yield* runningHolders(cycle, plan);
  return { ledger, running, started };
}

/** Takes the places of the started jobs in the ledger. */
function* startedHolders(
  { view, snapshot }: SchedulingCycle,
  plan: Plan,
  { entry: own }: QueuedJob,
  ledger: Ledger,
): Steps<StartedHolder[]> {
  const { nowMs, settings, queue } = snapshot;
  const jobs = new Map(queue.map((job) => [entryKey(job.entry), job]));
  const started: StartedHolder[] = [];
  for (const { entry, placements } of plan.starts) {
    const job = jobs.get(entryKey(entry));
    // If the plan is older than the snapshot, a job that has left the queue already holds its
    // places.
    if (!job || isSameEntry(entry, own)) continue;
    yield;
    const { shape, shared: wanted } = yield* gangOf(snapshot, job);
    const tasks = [...locate(placements, view.roster)];
    for (const { node, devices } of tasks) ledger.take(node, shape, devices);
    const shared = ledger.takeShared(wanted);
    const expectedEndMs = nowMs + runtimeBoundMs(job, settings);
    const release = { atMs: expectedEndMs, shape, tasks, shared };
    started.push({ job: { ...job, startedAtMs: nowMs }, release, expectedEndMs });
  }
  return started;
}

function* runningHolders(
  { view, snapshot, releases }: SchedulingCycle,
  plan: Plan,
): Steps<Holder[]> {
  const startMs = new Map(
    plan.reservations.map(({ entry, startAtMs }) => [entryKey(entry), startAtMs]),
  );
  const leavesByMs = new Map(
    plan.preemptions.map(({ victimId, forEntry }) => [victimId, startMs.get(entryKey(forEntry))]),
  );
  const all = yield* releases.all();
  const running: Holder[] = [];
  for (const job of view.running.values()) {
    const known = all.get(job.id)!;
    const latestMs = Math.min(known.atMs, leavesByMs.get(job.id) ?? Number.POSITIVE_INFINITY);
    const expectedEndMs = Math.max(
      snapshot.nowMs,
      Math.min(latestMs, job.expectedEndMs ?? latestMs),
    );
    running.push({ job, release: { ...known, atMs: latestMs }, expectedEndMs });
    if (running.length % JOBS_PER_STEP === 0) yield;
  }
  return running;
}
