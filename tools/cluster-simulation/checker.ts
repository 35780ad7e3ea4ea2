import type { Violation } from "@heddle/simulation/safety-checker";
import type { RunningTask } from "./nodes/running-task.ts";

const DEVICE_MILLI = 1_000;
/** Characters of a log that a violation shows. */
const SHOWN = 100;

/** What must hold at every step of a run, whatever fails. */
export class Checker {
  violation: Violation | undefined;
  readonly #running = new Set<RunningTask>();
  /** The highest attempt of each job that has started a task. */
  readonly #attempts = new Map<string, number>();
  /** Starts by task, so that a second one is seen. */
  readonly #started = new Map<string, number>();
  starts = 0;
  /** Starts and ends of tasks. */
  changes = 0;

  demand(holds: boolean, invariant: string, detail: () => string): void {
    if (!holds) this.violation ??= { invariant, detail: detail() };
  }

  taskStarts(task: RunningTask): void {
    this.starts++;
    this.changes++;
    const { jobId, attempt, rank } = task.id;
    const times = (this.#started.get(task.key) ?? 0) + 1;
    this.#started.set(task.key, times);
    this.demand(times === 1, "a task starts once", () => `${describe(task)}: ${times} times`);
    const newest = this.#attempts.get(jobId) ?? 0;
    this.demand(
      attempt >= newest,
      "no attempt starts after a later one",
      () => `${describe(task)}: attempt ${newest} has started`,
    );
    this.#attempts.set(jobId, Math.max(newest, attempt));
    for (const other of this.#running) {
      const isSameRank = other.id.jobId === jobId && other.id.rank === rank;
      this.demand(
        !isSameRank,
        "a rank runs once at a time",
        () => `${describe(task)} beside ${describe(other)}`,
      );
      const isOlder = other.id.jobId === jobId && other.id.attempt < attempt;
      this.demand(
        !isOlder,
        "an attempt starts when the one before has ended",
        () => `${describe(task)} beside ${describe(other)}`,
      );
    }
    this.tasks.set(task.key, task);
    this.#running.add(task);
    this.#checkDevices(task);
  }

  /** Every task that has run, by its key. */
  readonly tasks = new Map<string, RunningTask>();

  /** What a reader gets of a task's output: all of it where the task succeeded, else its beginning. */
  checkLog(key: string, text: string, isWhole: boolean): void {
    const written = this.tasks.get(key)?.output.join("") ?? "";
    const isRight = isWhole ? text === written : written.startsWith(text);
    this.demand(
      isRight,
      "logs are the bytes that were written",
      () => `${key} at ${firstDifference(text, written)}`,
    );
  }

  taskEnds(task: RunningTask): void {
    this.changes++;
    this.#running.delete(task);
  }

  get runningTasks(): Iterable<RunningTask> {
    return this.#running;
  }

  get running(): number {
    return this.#running.size;
  }

  runningOn(machine: string): string[] {
    return [...this.#running].filter((task) => task.machine === machine).map(({ key }) => key);
  }

  #checkDevices(task: RunningTask): void {
    for (const device of task.devices) {
      const sharing = [...this.#running].filter(
        ({ machine, devices }) => machine === task.machine && devices.includes(device),
      );
      const milli = sharing.reduce((sum, { gpuMilli }) => sum + gpuMilli, 0);
      this.demand(
        milli <= DEVICE_MILLI,
        "no device is given twice",
        () => `device ${device}: ${sharing.map(describe).join(", ")} hold ${milli} thousandths`,
      );
    }
  }
}

function firstDifference(text: string, written: string): string {
  let at = 0;
  while (at < text.length && text[at] === written[at]) at++;
  const from = (all: string) => JSON.stringify(all.slice(at, at + SHOWN));
  return `${at} of ${written.length} bytes: wrote ${from(written)}, and the log has ${from(text)}`;
}

function describe({ key, machine }: RunningTask): string {
  return `${key} on ${machine}`;
}
