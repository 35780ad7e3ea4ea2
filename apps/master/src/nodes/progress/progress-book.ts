import { progressLine } from "@heddle/contracts/api/job-spec";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { furtherNumbers } from "@heddle/contracts/metrics/metric-record";
import { isEarlier } from "@heddle/control/jobs/commands/task-reports";
import type { ReportProgressCommand } from "@heddle/control/jobs/records/commands";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import type {
  CheckpointRecord,
  JobRecord,
  ProgressRecord,
} from "@heddle/control/jobs/records/records";

type ProgressEntry = ReportProgressCommand["entries"][number];

/** Bound on jobs with progress; further ones are ignored. */
const MAX_JOBS = 10_000;
/** Interval between two log entries of one job's progress. */
const LOG_EVERY_MS = 10_000;
/** The same for a new checkpoint, since the next attempt resumes from the last one in the log. */
const LOG_CHECKPOINT_EVERY_MS = 1_000;
/** After this long without progress of the reporting rank, a higher rank reports for the job. */
const SILENT_RANK_MS = 30_000;
const MAX_BATCH = 256;
const MAX_MESSAGE = 1_024;
/** Workers take no longer one from a program. */
const MAX_CHECKPOINT_NAME = 512;

/** The known progress of a job. */
export interface SeenProgress {
  readonly latest: ProgressRecord;
  /** The attempt's first reading at this master, for the speed. */
  readonly first?: ProgressRecord | undefined;
}

/** A task's reading, with its node's time. */
interface RankReading {
  readonly incarnation: number;
  readonly atMs: number;
}

interface Held {
  readonly entry: ProgressEntry;
  readonly latest: ProgressRecord;
  readonly first: ProgressRecord;
  readonly rank: number;
  /** When it arrived, by this master's clock: clocks of two nodes are not comparable. */
  readonly arrivedMs: number;
  /** The last progress of each rank of the attempt; at most one per task. */
  readonly readings: Map<number, RankReading>;
  isNew: boolean;
}

/**
 * The latest progress of each job from its workers: every master gets their heartbeats, the leader
 * also their sessions. Not replicated. The leader logs changes at intervals and before an attempt
 * ends; new checkpoints sooner.
 */
export class ProgressBook {
  readonly #everyMs: number;
  readonly #jobs = new Map<string, Held>();
  /** Keyed by job: the last log entry and its time. */
  readonly #written = new Map<string, { readonly entry: ProgressEntry; readonly atMs: number }>();
  readonly #listeners = new Set<() => void>();

  /** `everyMs`: interval between two log entries of one job's progress. */
  constructor(everyMs = LOG_EVERY_MS) {
    this.#everyMs = everyMs;
  }

  /** Called on new progress; returns the function that unsubscribes. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes a status. The lowest reporting rank counts for its job; repeated lines are ignored. */
  take(
    { task, progress }: Pick<TaskStatus__Output, "task" | "progress">,
    arrivedMs = performance.now(),
  ): void {
    if (!task || !progress) return;
    const { jobId, attempt, rank, incarnation } = task;
    const held = this.#jobs.get(jobId);
    if (!held && this.#jobs.size >= MAX_JOBS) return;
    if (held && held.entry.attempt > attempt) return;
    const known = held?.entry.attempt === attempt ? held : undefined;
    const readings = known?.readings ?? new Map<number, RankReading>();
    if (isRepeated(readings.get(rank), incarnation, progress.atUnixMs)) return;
    readings.set(rank, { incarnation, atMs: progress.atUnixMs });
    if (known && rank > known.rank && arrivedMs - known.arrivedMs <= SILENT_RANK_MS) return;
    const line = parse(progress.line);
    if (!line) return;
    const speaker = { attempt, rank, incarnation };
    const latest = { ...progressOf(line, progress.atUnixMs), ...speaker };
    const { checkpoint: name, checkpointUnixMs, checkpointStep: step } = progress;
    const { checkpointBytes } = progress;
    const size = checkpointBytes > 0 ? { bytes: checkpointBytes } : {};
    const checkpoint: CheckpointRecord = {
      name,
      ...speaker,
      step,
      atMs: checkpointUnixMs,
      ...size,
    };
    const isNamed = name !== "" && name.length <= MAX_CHECKPOINT_NAME;
    const entry = { jobId, attempt, progress: latest, ...(isNamed && { checkpoint }) };
    const isSameTask = known?.rank === rank && known.latest.incarnation === incarnation;
    const first = isSameTask ? known.first : latest;
    this.#jobs.set(jobId, { entry, latest, first, rank, arrivedMs, readings, isNew: true });
    for (const listener of this.#listeners) listener();
  }

  /** The job's progress: the log's, or the running attempt's if that is fresher. */
  of({ id, state, attempt, progress }: JobRecord): SeenProgress | undefined {
    const held = isTerminal(state) ? undefined : this.#jobs.get(id);
    if (held?.entry.attempt !== attempt) return progress && { latest: progress };
    const { latest, first } = held;
    const logged = (progress?.attempt ?? attempt) === attempt ? progress : undefined;
    return logged && isEarlier(latest, logged) ? { latest: logged } : { latest, first };
  }

  /** The entries to log now: of jobs whose interval has passed, and of the urgent ones. */
  due(nowMs: number, urgent: ReadonlySet<string>): ProgressEntry[] {
    const due: ProgressEntry[] = [];
    for (const [jobId, held] of this.#jobs) {
      if (!held.isNew || due.length >= MAX_BATCH) continue;
      if (!urgent.has(jobId) && nowMs < this.#dueMs(jobId, held.entry)) continue;
      due.push(held.entry);
    }
    return due;
  }

  #dueMs(jobId: string, { checkpoint }: ProgressEntry): number {
    const written = this.#written.get(jobId);
    if (!written) return Number.NEGATIVE_INFINITY;
    const isNewCheckpoint = checkpoint && checkpoint.name !== written.entry.checkpoint?.name;
    const everyMs = isNewCheckpoint
      ? Math.min(LOG_CHECKPOINT_EVERY_MS, this.#everyMs)
      : this.#everyMs;
    return written.atMs + everyMs;
  }

  written(entries: readonly ProgressEntry[], nowMs: number): void {
    for (const entry of entries) {
      this.#written.set(entry.jobId, { entry, atMs: nowMs });
      const held = this.#jobs.get(entry.jobId);
      if (held?.entry === entry) held.isNew = false;
    }
  }

  /** Drops jobs that are not live. */
  keepOnly(isLive: (jobId: string) => boolean): void {
    for (const jobId of this.#jobs.keys()) {
      if (isLive(jobId)) continue;
      this.#jobs.delete(jobId);
      this.#written.delete(jobId);
    }
  }
}

/** Whether the rank has reported this or something later before. */
function isRepeated(last: RankReading | undefined, incarnation: number, atMs: number): boolean {
  if (!last || incarnation > last.incarnation) return false;
  return incarnation < last.incarnation || atMs <= last.atMs;
}

type Line = ReturnType<typeof progressLine.parse>;

function parse(text: string): Line | undefined {
  try {
    return progressLine.parse(JSON.parse(text));
  } catch {
    return undefined; // A worker of another version; its next line may be valid.
  }
}

function progressOf(line: Line, atMs: number): ProgressRecord {
  const { step, total_steps: totalSteps } = line;
  const metrics = furtherNumbers(line);
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
    metrics: Object.keys(metrics).length > 0 ? metrics : undefined,
    message: line.message?.slice(0, MAX_MESSAGE),
  };
}
