import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type { JobRecord, ProgressRecord } from "@heddle/control/jobs/records/records";
import { ReadMetric, type Sample } from "@heddle/observability/read-metric";
import { Inject } from "@nestjs/common";
import { Registry } from "prom-client";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { ProgressBook } from "../nodes/progress/progress-book.ts";

/** Maximum jobs with labels, the latest submitted first. */
const MAX_JOBS = 100;

interface Figure {
  readonly name: string;
  readonly help: string;
  readonly read: (progress: ProgressRecord, job: JobRecord) => number | null | undefined;
}

const FIGURES: readonly Figure[] = [
  { name: "loss", help: "The latest loss.", read: ({ loss }) => loss },
  { name: "return", help: "The latest mean return of episodes.", read: ({ reward }) => reward },
  { name: "steps", help: "Steps done.", read: ({ step }) => step },
  { name: "steps_total", help: "Steps to do.", read: ({ totalSteps }) => totalSteps },
  {
    name: "steps_per_second",
    help: "Steps a second, lately.",
    read: ({ stepsPerSecond }) => stepsPerSecond,
  },
  {
    name: "tokens_per_second",
    help: "Tokens a second, lately.",
    read: ({ tokensPerSecond }) => tokensPerSecond,
  },
  {
    name: "bytes_pushed",
    help: "Bytes sent to the parameter servers by the node that reports.",
    read: ({ bytesPushed }) => bytesPushed,
  },
  { name: "attempt", help: "The present attempt.", read: (_, { attempt }) => attempt },
  {
    name: "checkpoint_timestamp_seconds",
    help: "When the latest durable checkpoint was reported.",
    read: (_, { checkpoint }) => checkpoint && checkpoint.atMs / 1_000,
  },
];

/**
 * `heddle_training_*` in /metrics: progress of live jobs with an algorithm, as known to this
 * master.
 */
export class TrainingMetrics {
  constructor(
    @Inject(Registry) registry: Registry,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ProgressBook) progress: ProgressBook,
    @Inject(StepQueue) queue: StepQueue,
  ) {
    const shown = new SharedRun(queue, (inSteps) => inSteps(() => shownJobs(control, progress)));
    for (const { name: figure, help: what, read } of FIGURES) {
      const name = `heddle_training_${figure}`;
      const help = `${what} Of each training job that runs, up to ${MAX_JOBS}.`;
      new ReadMetric(registry, { name, help, type: "gauge" }, async () =>
        samplesOf(await shown.get(), read),
      );
    }
  }
}

interface ShownJob {
  readonly job: JobRecord;
  readonly algorithm: string;
  readonly latest: ProgressRecord;
}

function* samplesOf(jobs: readonly ShownJob[], read: Figure["read"]): Generator<Sample, void> {
  for (const { job, algorithm, latest } of jobs) {
    const value = read(latest, job);
    if (typeof value !== "number") continue;
    yield { labels: { job: job.id, name: job.name, algorithm }, value };
  }
}

function* shownJobs({ state, jobs }: ControlPlane, progress: ProgressBook): Steps<ShownJob[]> {
  const shown: ShownJob[] = [];
  yield* forEachInSteps([...jobs.live].reverse(), (id) => {
    if (shown.length === MAX_JOBS) return;
    const algorithm = state.specs.get(id)?.algorithm;
    const job = state.jobs.get(id);
    const seen = job && progress.of(job);
    if (algorithm === undefined || !seen || isTerminal(job.state)) return;
    shown.push({ job, algorithm, latest: seen.latest });
  });
  return shown;
}
