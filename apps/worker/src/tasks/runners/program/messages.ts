/**
 * The messages of the worker and a task's runner elsewhere, by files in a folder that both see.
 * Files work with every container runtime, and neither needs the other to be alive.
 */
export const CONTROL_FILES = {
  /** What to run, written before the runner reads it. */
  program: "program.json",
  /** Orders of the worker and events of the runner, one line of JSON each. */
  orders: "orders.jsonl",
  events: "events.jsonl",
} as const;

/** A variable of a batch system's job, whose processes are known by its value. */
export const RUNNER_MARK = "HEDDLE_RUNNER";

/** The program of a task, and where its runner finds the rest. */
export interface RunnerProgram {
  readonly command: readonly string[];
  /** In addition to the image's. */
  readonly environment: Readonly<Record<string, string>>;
  /** Empty: the image's. */
  readonly workingDirectory: string;
  /** HOME, where the image's cannot be written. */
  readonly home: string;
  /** Named pipes for the program's output, and the files to which it is copied. */
  readonly pipes: readonly [stdout: string, stderr: string];
  readonly logs: readonly [stdout: string, stderr: string];
  /** The worker's lease: without it the program is killed. */
  readonly leaseFile: string;
  /** The first rank's host name, which is awaited; empty for none. */
  readonly rendezvousHost: string;
}

/** An order of the worker. Each has an id of its own. */
export type RunnerOrder = { readonly id: string } & (
  | { readonly kind: "start" }
  | { readonly kind: "kill" }
  | { readonly kind: "signal"; readonly signal: NodeJS.Signals; readonly onlyCaught: boolean }
);

/** How a program ended. */
export interface RunnerEnd {
  readonly kind: "end";
  readonly exitCode?: number;
  readonly signal?: string;
  /** The outer system ended it, or the worker's lease has ended. */
  readonly isLost?: boolean;
  /** The worker ordered to kill it. */
  readonly isKilled?: boolean;
}

/** An event of the runner. */
export type RunnerEvent =
  | { readonly kind: "ready" }
  | { readonly kind: "started" }
  /** The program cannot be started. */
  | { readonly kind: "failed"; readonly message: string }
  /** The number of processes that got the order's signal. */
  | { readonly kind: "answer"; readonly id: string; readonly count: number }
  | RunnerEnd;
