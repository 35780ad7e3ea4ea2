import {
  type ProcessEvents,
  type ProcessKind,
  type ProcessSpec,
  RESTART_LIMITS,
  type RestartLimits,
  SupervisedProcess,
} from "./supervised-process.ts";

/**
 * The order of the end, and what each kind is given for it. Masters go first: they take no more
 * calls, let those that run end for a while, and tell the others that this is a shutdown and not a
 * fault; workers are there to answer meanwhile.
 */
const STOP_ORDER: readonly { readonly kind: ProcessKind; readonly graceMs: number }[] = [
  { kind: "master", graceMs: 6_000 },
  { kind: "worker", graceMs: 5_000 },
  { kind: "parameter-server", graceMs: 3_000 },
];

/** All processes of one local cluster. They start together and end in order. */
export class Supervisor {
  readonly #processes: readonly SupervisedProcess[];
  #isStopping = false;
  /** Processes that have been ready; never goes back. */
  readyCount = 0;

  constructor(
    specs: readonly ProcessSpec[],
    events: ProcessEvents,
    limits: RestartLimits = RESTART_LIMITS,
  ) {
    this.#processes = specs.map((spec) => new SupervisedProcess(spec, events, limits));
  }

  /**
   * Resolves when all are ready but the masters that their group can do without and that have given
   * up; rejects with the first other one that gives up.
   */
  async start(): Promise<void> {
    for (const supervised of this.#processes) {
      const { after } = supervised.spec;
      if (after) void after().then(() => this.#isStopping || supervised.start());
      else supervised.start();
      // Of one that gives up its other waiters are told.
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

  /** The masters that run, or will again. */
  get mastersLeft(): string[] {
    const left = this.#processes.filter(({ spec, isOver }) => spec.kind === "master" && !isOver);
    return left.map(({ spec }) => spec.name);
  }

  /** Resolves when every process is gone. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    for (const { kind, graceMs } of STOP_ORDER) {
      const group = this.#processes.filter(({ spec }) => spec.kind === kind);
      await Promise.all(group.map((supervised) => supervised.stop(graceMs)));
    }
  }

  /** Ends everything at once. */
  kill(): void {
    for (const supervised of this.#processes) supervised.kill();
  }

  /** Process ids by name, of those that run now. */
  pids(): ReadonlyMap<string, number> {
    return new Map(
      this.#processes.flatMap(({ spec, pid }) => (pid === undefined ? [] : [[spec.name, pid]])),
    );
  }
}

/** Resolves when each is settled; rejects as soon as so many have failed that no majority is left. */
async function majorityOf(all: readonly Promise<void>[]): Promise<void> {
  let failed = 0;
  const settled = all.map((ready) =>
    ready.catch((error: unknown) => {
      if (++failed > (all.length - 1) / 2) throw error;
    }),
  );
  await Promise.all(settled);
}
