import { resolvesWithin } from "@heddle/base/async/resolves-within";
import type { TaskProgress } from "@heddle/contracts/generated/heddle/v1/TaskProgress";
import type { MetricHistory } from "../../records/metric-history.ts";
import {
  encodeProgress,
  type ProgressFile,
  type ProgressLine,
} from "../../records/progress-file.ts";
import type { CheckpointLedger } from "./checkpoint-ledger.ts";

interface ProgressReporterOptions {
  readonly file: ProgressFile;
  readonly history: MetricHistory;
  readonly checkpoints: CheckpointLedger;
  /** The shortest time between two reports without a checkpoint. */
  readonly intervalMs: number;
  onFault(error: unknown): void;
}

type Latest = Pick<TaskProgress, "checkpoint" | "checkpointUnixMs" | "checkpointStep">;

/** The progress that a task's program has written, and the part that is reported to the masters. */
export class ProgressReporter {
  readonly #options: ProgressReporterOptions;
  /** The latest line of the program, and the latest report, which is less frequent. */
  #latest: TaskProgress | undefined;
  #reported: TaskProgress | undefined;
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  /** A checkpoint that waits for its second copy. */
  #waiting: Latest | undefined;
  /** Whether this process has read the file before. */
  #isRead = false;
  #copying: Promise<void> = Promise.resolve();
  /** Checkpoints of another rank for which this one has reported that it is ready to leave. */
  keptCount = 0;

  constructor(options: ProgressReporterOptions) {
    this.#options = options;
  }

  get reported(): TaskProgress | undefined {
    return this.#reported;
  }

  /** The task was stopped, and continues. */
  onResumed(): void {
    this.#latest = { line: "{}", ...this.#latest, atUnixMs: Date.now() };
    this.#reported = this.#latest;
  }

  /** Reads new lines, and resolves with whether there is something to report. */
  async read(
    isLeaseLive: () => boolean,
    onStep: (step: number) => void,
    isLast: boolean,
  ): Promise<boolean> {
    const { file, history } = this.#options;
    const recorded = this.#isRead ? [] : await this.#readRecorded();
    const lines = await file.read();
    if (!isLeaseLive()) return false;
    await history.add(lines, file.offset, isLast);
    if (recorded.length + lines.length > 0) this.#onLines([...recorded, ...lines], onStep);
    return this.#report(isLast);
  }

  /** The latest lines that an earlier process of this worker has recorded: they are reported again. */
  async #readRecorded(): Promise<readonly ProgressLine[]> {
    this.#isRead = true;
    const { file, history } = this.#options;
    const end = await history.resume();
    return end > 0 ? file.read(end) : [];
  }

  /**
   * Waits for second copies up to the limit; resolves with whether there is something to report.
   */
  async settle(maxMs: number): Promise<boolean> {
    const waiting = this.#waiting;
    if (!waiting) return false;
    await resolvesWithin(this.#copying, maxMs);
    this.#saved(waiting);
    return this.#report(true);
  }

  #onLines(lines: readonly ProgressLine[], onStep: (step: number) => void): void {
    const { checkpoints, onFault } = this.#options;
    const atUnixMs = Date.now();
    const named: string[] = [];
    let latest: Latest | undefined;
    for (const line of lines) {
      if (line.checkpoint_kept) this.keptCount++;
      if (line.step !== undefined) onStep(line.step);
      if (line.checkpoint === undefined) continue;
      const checkpointStep = line.checkpoint_step ?? line.step;
      latest = { checkpoint: line.checkpoint, checkpointUnixMs: atUnixMs, checkpointStep };
      named.push(line.checkpoint);
    }
    this.#latest = { ...this.#latest, line: encodeProgress(lines.at(-1)), atUnixMs };
    if (!latest) return;
    const saved = latest;
    // A list that cannot be kept, as on a full disk, affects neither the checkpoints nor the task.
    const added = checkpoints.add(named).catch(onFault);
    void added.then(() => checkpoints.measure()).then((bytes) => this.#measured(bytes), onFault);
    if (!checkpoints.hasCopies) {
      this.#saved(saved);
      return;
    }
    this.#waiting = saved;
    const onUncopied = (error: unknown) => {
      onFault(error);
      // If a later one follows it may be removed already.
      if (this.#waiting === saved) this.#saved(saved);
    };
    this.#copying = added
      .then(() => checkpoints.copyLatest())
      .then(() => this.#saved(saved), onUncopied);
  }

  /** Goes with the next report. */
  #measured(checkpointBytes: number): void {
    if (!this.#latest || this.#latest.checkpointBytes === checkpointBytes) return;
    const atUnixMs = Math.max(Date.now(), Number(this.#latest.atUnixMs ?? 0) + 1);
    this.#latest = { ...this.#latest, atUnixMs, checkpointBytes };
  }

  #saved(latest: Latest): void {
    if (this.#waiting === latest) this.#waiting = undefined;
    const isOlder = (latest.checkpointUnixMs ?? 0) < (this.#latest?.checkpointUnixMs ?? 0);
    if (!this.#latest || isOlder) return;
    // Masters accept only later reports.
    const atUnixMs = Math.max(Date.now(), Number(this.#latest.atUnixMs ?? 0) + 1);
    this.#latest = { ...this.#latest, atUnixMs, ...latest };
  }

  /** At the interval of the job's `monitoring_config`; a checkpoint and the last line at once. */
  #report(isLast: boolean): boolean {
    if (this.#latest === this.#reported) return false;
    const isDue = performance.now() - this.#reportedAtMs >= this.#options.intervalMs;
    const isDurable = this.#latest?.checkpointUnixMs !== this.#reported?.checkpointUnixMs;
    if (!isLast && !isDue && !isDurable) return false;
    this.#reported = this.#latest;
    this.#reportedAtMs = performance.now();
    return true;
  }
}
