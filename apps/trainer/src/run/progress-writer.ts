import { appendFileSync } from "node:fs";
import type { ParameterTraffic } from "@heddle/parameters/parameter-server-client";
import type { RoundReport } from "@heddle/training/training-loop";
import { UnwritableFile } from "../trainer-errors.ts";

/** Lines are written no faster than this, except the last and those of checkpoints. */
const LINE_MS = 200;

export interface ProgressFacts {
  /** The worker reads the task's progress here. */
  readonly progressFile: string;
  /** The file of each round's metrics, of rank 0. */
  readonly metricsFile: string | undefined;
  /** The steps of the whole job, if it does not end early. */
  readonly totalSteps: number;
  readonly backend: string;
  readonly device: string;
  /** The node's traffic; undefined where another task of the node reports it. */
  traffic(): ParameterTraffic | undefined;
}

/**
 * Reports each round: to the worker as a line of progress, and to the artifacts as one of metrics.
 */
export class ProgressWriter {
  readonly #facts: ProgressFacts;
  #reportedAtMs = performance.now();
  #reportedStep: number | undefined;
  #tokens = 0;
  #rates: Readonly<Record<string, number>> = {};
  #latest: RoundReport | undefined;

  constructor(facts: ProgressFacts) {
    this.#facts = facts;
  }

  /** The latest round that was reported. */
  get latest(): RoundReport | undefined {
    return this.#latest;
  }

  round(report: RoundReport): void {
    const { metricsFile } = this.#facts;
    this.#latest = report;
    const { round, step, loss, reward, metrics } = report;
    if (metricsFile !== undefined)
      appendLine(metricsFile, { round, step, loss, reward, ...metrics });
    if (this.#reportedStep === undefined) this.#begin(step);
    else this.#tokens += report.tokens ?? 0;
    const isLast = step >= this.#facts.totalSteps || report.reached === true;
    if (isLast || performance.now() - this.#reportedAtMs >= LINE_MS) this.#report({});
  }

  /** Reports that a checkpoint is durable, and its step. */
  checkpoint(name: string, step: number): void {
    this.#report({ checkpoint: name, checkpoint_step: step });
  }

  /** Reports that this rank has saved its state for a checkpoint that rank 0 names. */
  onStateSaved(): void {
    this.#report({ checkpoint_kept: true });
  }

  /** Rates exclude the first round, which warms up. */
  #begin(step: number): void {
    this.#reportedStep = step;
    this.#reportedAtMs = performance.now();
  }

  #report(more: Readonly<Record<string, unknown>>): void {
    const { backend, device, progressFile, totalSteps } = this.#facts;
    const { round, step, loss, reward, metrics } = this.#latest ?? {};
    appendLine(progressFile, {
      step,
      total_steps: totalSteps,
      loss,
      reward,
      round,
      ...(this.#latest?.reached && { progress: 1 }),
      ...this.#ratesNow(),
      backend,
      device,
      ...metrics,
      ...this.#moved(),
      ...more,
    });
  }

  /** Since the last line; a line between two rounds, as of a checkpoint, repeats the last rates. */
  #ratesNow(): Readonly<Record<string, number>> {
    const step = this.#latest?.step ?? 0;
    const nowMs = performance.now();
    const seconds = (nowMs - this.#reportedAtMs) / 1_000;
    const steps = step - (this.#reportedStep ?? step);
    if (steps <= 0 || seconds <= 0) return this.#rates;
    const tokens = rounded(this.#tokens / seconds);
    this.#rates = {
      steps_per_second: rounded(steps / seconds),
      ...(tokens > 0 && { tokens_per_second: tokens }),
    };
    this.#reportedAtMs = nowMs;
    this.#reportedStep = step;
    this.#tokens = 0;
    return this.#rates;
  }

  #moved(): Readonly<Record<string, unknown>> {
    const traffic = this.#facts.traffic();
    if (!traffic) return {};
    const { bytesPushed, bytesPulled, paths } = traffic;
    const [path] = paths;
    return {
      bytes_pushed: bytesPushed,
      bytes_pulled: bytesPulled,
      data_path: path && `push ${path.push || "-"}, pull ${path.pull || "-"}`,
    };
  }
}

function rounded(rate: number): number {
  return Math.round(rate * 10) / 10;
}

/** One JSON object without undefined fields; NaN becomes null. */
function appendLine(path: string, fields: Readonly<Record<string, unknown>>): void {
  try {
    appendFileSync(path, `${JSON.stringify(fields)}\n`);
  } catch (cause) {
    throw cause instanceof Error ? new UnwritableFile(`a line of ${path}`, cause) : cause;
  }
}
