/** What a process of simulated workers is started with, as its one argument in JSON. */
export interface WorkersSettings {
  /** Workers are named `worker-FIRST` and on. */
  readonly first: number;
  readonly count: number;
  /** Workers of one rack. */
  readonly rack: string;
  /** host:port of each master's gRPC server. */
  readonly masters: readonly string[];
  readonly clusterToken: string;
  /** Holds a folder for each worker. */
  readonly folder: string;
}

/** A task's beginning and end, wall-clock milliseconds of the machine. */
export interface TaskTimes {
  readonly jobId: string;
  readonly startedMs: number;
  endedMs: number | undefined;
}

/** What a process of simulated workers prints on the input line `report`. */
export interface WorkersReport {
  /** Keyed by host:port of the master: when each attached worker attached last. */
  readonly attachedMs: Readonly<Record<string, readonly number[]>>;
  /** The session's term and its first grant, of each worker with a session and a granted lease. */
  readonly sessions: readonly { readonly term: number; readonly grantedMs: number }[];
  /** Tasks that started or ended since the last report. */
  readonly tasks: readonly TaskTimes[];
  /** Attach streams opened since the process began, and the most in any second. */
  readonly attempts: number;
  readonly mostAttemptsInSecond: number;
  readonly cpuMs: number;
}

/** The environment variable of a job that says how long its simulated task runs. */
export const RUN_MS_VARIABLE = "BENCH_RUN_MS";
/** Likewise the lines that it prints in each second. */
export const LINES_VARIABLE = "BENCH_LINES_PER_SECOND";
