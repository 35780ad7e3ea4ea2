import { diskUseBeneath } from "@heddle/base/beneath";
import { AppError } from "@heddle/base/errors";
import type { TaskDirectory } from "../records/task-directory.ts";
import type { TaskPlan } from "../records/task-plan.ts";
import type { TaskHandle } from "./executors/executor.ts";
import { type ExitVerdict, OUT_OF_MEMORY_ADVICE } from "./executors/exit-reason.ts";

const MEMORY_EVERY_MS = 500;
const DISK_EVERY_MS = 5_000;
const UNITS = [
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
] as const;
/** The most counted entries of a task's directory; a task with more exceeds its bound. */
const MAX_COUNTED_ENTRIES = 200_000;

/**
 * Checks a running task's bounds: time, memory, disk, and time without steps. It reports a
 * violation; the task acts.
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

  /** Times are this process's monotonic ones; `directory` counts as the task's disk. */
  constructor(plan: TaskPlan, directory: TaskDirectory, startedAtMs: number, nowMs: number) {
    this.#plan = plan;
    this.#directory = directory;
    this.#startedAtMs = startedAtMs;
    this.#stepAtMs = nowMs;
    this.#memoryAtMs = nowMs;
    this.#diskAtMs = nowMs;
  }

  /** A step counts as progress only if it is later than the one before. */
  onStep(step: number, nowMs: number): void {
    if (step <= this.#lastStep) return;
    this.#lastStep = step;
    this.#stepAtMs = nowMs;
  }

  /** This worker has stopped it: no steps can be expected. */
  onHeld(nowMs: number): void {
    this.#stepAtMs = nowMs;
  }

  /** The first bound that the task exceeds. */
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
      const message = `it exceeded its maximum runtime of ${seconds(maxRuntimeMs)}: raise \`max_runtime_hours\``;
      return { reason: "DeadlineExceeded", message };
    }
    if (hangTimeoutMs > 0 && nowMs - this.#stepAtMs > hangTimeoutMs) {
      const message = `no new step for ${seconds(hangTimeoutMs)} (\`hang_timeout_seconds\`): it must write its steps to HEDDLE_PROGRESS_FILE`;
      return { reason: "Hang", message };
    }
    return undefined;
  }

  async #memoryVerdict(handle: TaskHandle, nowMs: number): Promise<ExitVerdict | undefined> {
    const { memoryBytes } = this.#plan.spec;
    if (memoryBytes === 0 || nowMs - this.#memoryAtMs < MEMORY_EVERY_MS) return undefined;
    this.#memoryAtMs = nowMs;
    const used = (await handle.usage()).memoryBytes;
    if (used <= memoryBytes) return undefined;
    const message = `it used ${sizeText(used)} of the ${sizeText(memoryBytes)} that it requested: ${OUT_OF_MEMORY_ADVICE}`;
    return { reason: "OutOfMemory", message };
  }

  /** From the latest scan, which may take long and is not awaited. */
  #lookAtDisk(nowMs: number): ExitVerdict | undefined {
    const { diskBytes } = this.#plan.spec;
    if (diskBytes === 0 || nowMs - this.#diskAtMs < DISK_EVERY_MS) return this.#diskVerdict;
    this.#diskAtMs = Number.POSITIVE_INFINITY;
    void diskViolation(this.#directory, diskBytes).then((words) => {
      const advice = "ask for more with `resources.local_ssd_gb`";
      if (words) this.#diskVerdict = { reason: "ExitCode", message: `${words}: ${advice}` };
      this.#diskAtMs = performance.now();
    });
    return this.#diskVerdict;
  }
}

/** The violation of the disk's bound; undefined where there is none, or where the scan fails. */
async function diskViolation(
  { root, name }: TaskDirectory,
  diskBytes: number,
): Promise<string | undefined> {
  const asked = `the ${sizeText(diskBytes)} of disk that it asked for`;
  try {
    const used = await diskUseBeneath(root, name, MAX_COUNTED_ENTRIES);
    return used > diskBytes ? `it wrote ${sizeText(used)} of ${asked}` : undefined;
  } catch (error) {
    if (!(error instanceof AppError)) return undefined;
    return `it wrote more than can be counted for ${asked} (${error.message})`;
  }
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}

function sizeText(bytes: number): string {
  const [size, unit] = UNITS.find(([least]) => bytes >= least) ?? [1, "bytes"];
  return `${Number((bytes / size).toPrecision(4))} ${unit}`;
}
