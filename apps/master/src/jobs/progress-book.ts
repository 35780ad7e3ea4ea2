import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { progressLine } from "@heddle/contracts/jobs";
import type { ReportProgressCommand } from "@heddle/control/jobs/commands";
import type { CheckpointRecord, ProgressRecord } from "@heddle/control/jobs/records";

type ProgressEntry = ReportProgressCommand["entries"][number];

/** Jobs whose progress is held; more is passed over. */
const maxJobs = 10_000;
const maxBatch = 256;
const maxMessage = 1_024;
/** Numbers of a line beside those that every program may tell. */
const maxMetrics = 32;
/** While so few jobs tell of themselves, each may be put into the log this often. */
const fewJobs = 64;
const fewEveryMs = 2_000;

/**
 * The latest progress of each job, as its workers tell it. It is no part of the replicated state;
 * now and then, and before an attempt ends, what is new goes into the log.
 */
export class ProgressBook {
  readonly #everyMs: number;
  readonly #jobs = new Map<string, { entry: ProgressEntry; rank: number; isNew: boolean }>();
  /** By job: when its progress was last put into the log. */
  readonly #writtenMs = new Map<string, number>();

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  /** The lowest rank that reports speaks for its job. */
  take({ task, progress }: TaskStatus__Output): void {
    if (!task || !progress) return;
    const { jobId, attempt, rank } = task;
    const known = this.#jobs.get(jobId);
    if (known && known.entry.attempt === attempt && known.rank < rank) return;
    if (known && known.entry.attempt > attempt) return;
    if (!known && this.#jobs.size >= maxJobs) return;
    const line = parse(progress.line);
    if (!line) return;
    const entry: ProgressEntry = {
      jobId,
      attempt,
      progress: progressOf(line, progress.atUnixMs),
      ...(progress.checkpoint !== "" && {
        checkpoint: checkpointOf(
          progress.checkpoint,
          attempt,
          line.step,
          progress.checkpointUnixMs,
        ),
      }),
    };
    this.#jobs.set(jobId, { entry, rank, isNew: true });
  }

  /** The latest progress of a job, fresher than the log's; undefined where none is known here. */
  latest(jobId: string): ProgressRecord | undefined {
    return this.#jobs.get(jobId)?.entry.progress;
  }

  /** What is to go into the log now: of jobs whose turn it is, and of those named. */
  due(nowMs: number, urgent: ReadonlySet<string>): ProgressEntry[] {
    const due: ProgressEntry[] = [];
    const everyMs =
      this.#jobs.size <= fewJobs ? Math.min(fewEveryMs, this.#everyMs) : this.#everyMs;
    for (const [jobId, held] of this.#jobs) {
      if (!held.isNew || due.length >= maxBatch) continue;
      const sinceMs = nowMs - (this.#writtenMs.get(jobId) ?? Number.NEGATIVE_INFINITY);
      if (sinceMs < everyMs && !urgent.has(jobId)) continue;
      due.push(held.entry);
    }
    return due;
  }

  written(entries: readonly ProgressEntry[], nowMs: number): void {
    for (const entry of entries) {
      this.#writtenMs.set(entry.jobId, nowMs);
      const held = this.#jobs.get(entry.jobId);
      if (held?.entry === entry) held.isNew = false;
    }
  }

  /** Forgets jobs that are not among those that live. */
  keepOnly(isLive: (jobId: string) => boolean): void {
    for (const jobId of this.#jobs.keys()) {
      if (isLive(jobId)) continue;
      this.#jobs.delete(jobId);
      this.#writtenMs.delete(jobId);
    }
  }
}

type Line = ReturnType<typeof progressLine.parse>;

function parse(text: string): Line | undefined {
  try {
    return progressLine.parse(JSON.parse(text));
  } catch {
    return undefined; // A worker of another version; its next line may do.
  }
}

function progressOf(line: Line, atMs: number): ProgressRecord {
  const { step, total_steps: totalSteps } = line;
  const share = step !== undefined && totalSteps ? Math.min(1, step / totalSteps) : undefined;
  return {
    atMs,
    step,
    totalSteps,
    progress: line.progress ?? share,
    loss: line.loss,
    reward: line.reward,
    stepsPerSecond: line.steps_per_second,
    tokensPerSecond: line.tokens_per_second,
    backend: line.backend,
    device: line.device,
    bytesPushed: line.bytes_pushed,
    metrics: metricsOf(line),
    message: line.message?.slice(0, maxMessage),
  };
}

/** The further numbers of a line, in its order. */
function metricsOf(line: Line): ProgressRecord["metrics"] {
  const numbers = Object.entries(line).filter(
    ([name, value]) =>
      Number.isFinite(value) && !Object.hasOwn(progressLine.shape, name) && name.length <= 64,
  );
  if (numbers.length === 0) return undefined;
  return Object.fromEntries(numbers.slice(0, maxMetrics)) as Record<string, number>;
}

function checkpointOf(
  name: string,
  attempt: number,
  step: number | undefined,
  atMs: number,
): CheckpointRecord {
  return { name, attempt, step, atMs };
}
