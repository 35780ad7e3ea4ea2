import type { ProcessKind } from "@heddle/base/process/young-generation";
import {
  type ProcessEvents,
  type ProcessSpec,
  RESTART_LIMITS,
  type RestartLimits,
  SupervisedProcess,
} from "./supervised-process.ts";

/**
 * The order of the shutdown, with the grace of each kind. Masters are first: they accept no more
 * calls, drain the running ones and announce a shutdown. Workers keep answering meanwhile.
 */
const STOP_ORDER: readonly { readonly kind: ProcessKind; readonly graceMs: number }[] = [
  { kind: "master", graceMs: 6_000 },
  { kind: "worker", graceMs: 5_000 },
  { kind: "parameter-server", graceMs: 3_000 },
];

/** All processes of one local cluster. They start together and stop in order. */
export class Supervisor {
  readonly #processes: readonly SupervisedProcess[];
  /** Processes that have been ready; never decreases. */
  readyCount = 0;

  constructor(
    specs: readonly ProcessSpec[],
    events: ProcessEvents,
    limits: RestartLimits = RESTART_LIMITS,
  ) {
    this.#processes = specs.map((spec) => new SupervisedProcess(spec, events, limits));
  }

  /**
   * Resolves when all processes are ready; a minority of masters may fail. Rejects with the first
   * other process that crashed too often.
   */
  async start(): Promise<void> {
    for (const supervised of this.#processes) {
      supervised.start();
      // The other waiters handle its failure.
      supervised.ready.then(
        () => this.readyCount++,
        () => undefined,
      );
    }
    const isMaster = ({ spec }: SupervisedProcess) => spec.kind === "master";
    const masters = this.#processes.filter(isMaster).map(({ ready }) => ready);
    const others = this.#processes.filter((supervised) => !isMaster(supervised));
    await Promise.all([majorityOf(masters), ...others.map(({ ready }) => ready)]);
  }

  get size(): number {
    return this.#processes.length;
  }

  /** The masters that run or will restart. */
  get mastersLeft(): string[] {
    const left = this.#processes.filter(({ spec, isEnded }) => spec.kind === "master" && !isEnded);
    return left.map(({ spec }) => spec.name);
  }

  /** Resolves when every process is gone. */
  async stop(): Promise<void> {
    for (const { kind, graceMs } of STOP_ORDER) {
      const group = this.#processes.filter(({ spec }) => spec.kind === kind);
      await Promise.all(group.map((supervised) => supervised.stop(graceMs)));
    }
  }

  /** Kills all processes at once. */
  kill(): void {
    for (const supervised of this.#processes) supervised.kill();
  }

  /** Ids of the running processes by name. */
  pids(): ReadonlyMap<string, number> {
    return new Map(
      this.#processes.flatMap(({ spec, pid }) => (pid === undefined ? [] : [[spec.name, pid]])),
    );
  }
}

/** Resolves when each is settled; rejects as soon as no majority is possible. */
async function majorityOf(all: readonly Promise<void>[]): Promise<void> {
  let failed = 0;
  const settled = all.map((ready) =>
    ready.catch((error: unknown) => {
      if (++failed > (all.length - 1) / 2) throw error;
    }),
  );
  await Promise.all(settled);
}
