import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import type { TaskEnd } from "../../../apps/worker/src/tasks/executors/executor.ts";
import type { MachineClock, SimulatedProcess } from "../simulated-process.ts";

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
  /** Where it is a process of the simulation. */
  program?: TaskProgram;
}

/** A program that runs in a process of its own, not as events of the machine. */
export interface TaskProgram {
  /** Whether it handles the signal. */
  signal(name: string): boolean;
  /** Has the effect of SIGKILL. */
  end(): void;
}

/** The part of a task that its executor knows. */
export type StartedTask = Pick<RunningTask, "key" | "id" | "devices" | "gpuMilli">;

/** What a worker does on its machine. */
export interface TaskMachine {
  readonly name: string;
  readonly clock: MachineClock;
  readonly tasks: ReadonlyMap<string, RunningTask>;
  /** Starts the program of a task: lines of output until it ends after `runUs`. */
  start(task: StartedTask, stdout: string, runUs: number): void;
  /** Starts the trainer of a task. */
  train(task: StartedTask, stdout: string, orders: TrainerOrders): void;
  /** Whether its program handles the signal. */
  signal(key: string, signal: string): boolean;
  kill(key: string, signal: string): void;
  /** Calls it in the process once the task has ended. */
  onEnd(key: string, process: SimulatedProcess, work: (end: TaskEnd) => void): void;
  /** The guard's process kills all tasks at that time of the machine's clock. */
  guard(untilMs: number | undefined): void;
}
