import type { TaskEnd } from "../../apps/worker/src/tasks/executors/executor.ts";
import type { MachineClock, SimulatedProcess } from "./simulated-process.ts";

/** A task as the state names it. */
export interface TaskName {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  readonly incarnation: number;
}

/** A program of a task, which the machine runs whether or not its worker does. */
export interface RunningTask {
  readonly key: string;
  readonly id: TaskName;
  readonly machine: string;
  readonly devices: readonly number[];
  readonly gpuMilli: number;
  /** Its bytes of output. */
  readonly output: string[];
  end: TaskEnd | undefined;
}

/** What a worker does on its machine. */
export interface TaskMachine {
  readonly name: string;
  readonly clock: MachineClock;
  readonly tasks: ReadonlyMap<string, RunningTask>;
  /** Starts the program of a task: lines of output until it ends after `runUs`. */
  start(
    task: Pick<RunningTask, "key" | "id" | "devices" | "gpuMilli">,
    stdout: string,
    runUs: number,
  ): void;
  kill(key: string, signal: string): void;
  /** Calls it in the process once the task has ended. */
  onEnd(key: string, process: SimulatedProcess, work: (end: TaskEnd) => void): void;
  /** The guard's process kills all tasks at that time of the machine's clock. */
  guard(untilMs: number | undefined): void;
}
