import { diskUseBeneath } from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import type { TaskHandle } from "./executors/executor.ts";
import { type ExitVerdict, outOfMemoryAdvice } from "./executors/exit-reason.ts";
import type { TaskDirectory } from "./records/task-directory.ts";
import type { TaskPlan } from "./records/task-plan.ts";

const memoryEveryMs = 500;
const diskEveryMs = 5_000;
/** Entries of a task's directory that are counted; a task with more is held to have more bytes too. */
const maxCountedEntries = 200_000;

/**
 * Holds a running task to its bounds: time, memory, disk, and steps that must not stay out. It says
 * what is wrong; the task acts.
 */
export class TaskWatch {
  readonly #plan: TaskPlan;
  readonly #directory: TaskDirectory;
  readonly #startedAtMs: number;
  #lastStep = Number.NEGATIVE_INFINITY;
  #stepAtMs: number;
  #memoryAtMs: number;
  #diskAtMs: number;
  #diskVerdict: ExitVerdict | undefined;

  /** Times are this process's monotonic ones; `directory` is what counts as the task's disk. */
  constructor(plan: TaskPlan, directory: TaskDirectory, startedAtMs: number, nowMs: number) {
    this.#plan = plan;
    this.#directory = directory;
    this.#startedAtMs = startedAtMs;
    this.#stepAtMs = nowMs;
    this.#memoryAtMs = nowMs;
    this.#diskAtMs = nowMs;
  }

  /** A step that is no later than the one before is no progress. */
  onStep(step: number, nowMs: number): void {
    if (step <= this.#lastStep) return;
    this.#lastStep = step;
    this.#stepAtMs = nowMs;
  }

  /** It is stopped by this worker: steps cannot come. */
  onHeld(nowMs: number): void {
    this.#stepAtMs = nowMs;
  }

  /** The first bound that the task has passed. */
  async check(handle: TaskHandle, nowMs: number): Promise<ExitVerdict | undefined> {
    return (
      this.#timeVerdict(nowMs) ??
      (await this.#memoryVerdict(handle, nowMs)) ??
      this.#lookAtDisk(nowMs)
    );
  }

  #timeVerdict(nowMs: number): ExitVerdict | undefined {
    const { maxRuntimeMs, hangTimeoutMs } = this.#plan.spec;
    if (maxRuntimeMs > 0 && nowMs - this.#startedAtMs > maxRuntimeMs) {
      const message = `it ran longer than its bound of ${seconds(maxRuntimeMs)}: raise \`max_runtime_hours\``;
      return { reason: "DeadlineExceeded", message };
    }
    if (hangTimeoutMs > 0 && nowMs - this.#stepAtMs > hangTimeoutMs) {
      const message = `no new step came for ${seconds(hangTimeoutMs)} (\`hang_timeout_seconds\`): it must write its steps to HEDDLE_PROGRESS_FILE`;
      return { reason: "Hang", message };
    }
    return undefined;
  }

  async #memoryVerdict(handle: TaskHandle, nowMs: number): Promise<ExitVerdict | undefined> {
    const { memoryBytes } = this.#plan.spec;
    if (memoryBytes === 0 || nowMs - this.#memoryAtMs < memoryEveryMs) return undefined;
    this.#memoryAtMs = nowMs;
    const used = (await handle.usage()).memoryBytes;
    if (used <= memoryBytes) return undefined;
    const message = `it used ${gigabytes(used)} of the ${gigabytes(memoryBytes)} that it asked for: ${outOfMemoryAdvice}`;
    return { reason: "OutOfMemory", message };
  }

  /** Of the latest look, which may take long and is not waited for. */
  #lookAtDisk(nowMs: number): ExitVerdict | undefined {
    const { diskBytes } = this.#plan.spec;
    if (diskBytes === 0 || nowMs - this.#diskAtMs < diskEveryMs) return this.#diskVerdict;
    this.#diskAtMs = Number.POSITIVE_INFINITY;
    void wordsOnDisk(this.#directory, diskBytes).then((words) => {
      const advice = "ask for more with `resources.local_ssd_gb`";
      if (words) this.#diskVerdict = { reason: "ExitCode", message: `${words}: ${advice}` };
      this.#diskAtMs = performance.now();
    });
    return this.#diskVerdict;
  }
}

/** What is wrong with the use of the disk; undefined where nothing is, or where it cannot be looked at. */
async function wordsOnDisk(
  { root, name }: TaskDirectory,
  diskBytes: number,
): Promise<string | undefined> {
  const asked = `the ${gigabytes(diskBytes)} of disk that it asked for`;
  try {
    const used = await diskUseBeneath(root, name, maxCountedEntries);
    return used > diskBytes ? `it wrote ${gigabytes(used)} of ${asked}` : undefined;
  } catch (error) {
    if (!(error instanceof AppError)) return undefined;
    return `it wrote more than can be counted for ${asked} (${error.message})`;
  }
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(2)} GB`;
}
