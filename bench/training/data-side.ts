/** One way of moving a model of one size between two processes. */
export interface DataSide {
  readonly name: string;
  /** The processes of both ends. */
  readonly pids: readonly number[];
  /** What must happen before a push, untimed. */
  begin?(): Promise<void>;
  /** Gives the milliseconds until all is taken. */
  push(): Promise<number>;
  /** What must happen before a pull, untimed. */
  complete?(): Promise<void>;
  /** Gives the milliseconds until all is there. */
  pull(): Promise<number>;
  close(): Promise<void>;
}

/** The milliseconds that some work takes by the clock. */
export async function timed(work: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
