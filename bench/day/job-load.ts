import { setTimeout as sleep } from "node:timers/promises";
import type { Heddle } from "@heddle/client/heddle";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import { untilAnswered } from "./until-answered.ts";

/** A job that the cluster has accepted. */
export interface AcceptedJob {
  readonly id: string;
  readonly name: string;
  readonly submittedAtMs: number;
  /** What it prints; undefined of training. */
  readonly lines: readonly string[] | undefined;
  readonly ended: Promise<EndedJob>;
}

interface EndedJob {
  /** The reason of a failure, or why its end was never seen, behind the state. */
  readonly state: string;
  readonly afterMs: number;
}

export interface JobLoadPlan {
  /** The label of all its jobs. */
  readonly run: string;
  readonly liveCommands: number;
  readonly liveTraining: number;
}

const TRIES = 120;
const MAX_LINES = 40;
const MAX_PAUSE_SECONDS = 0.3;

/** Keeps some jobs of each kind alive until the signal aborts: commands that print, and training. */
export class JobLoad {
  readonly accepted: AcceptedJob[] = [];
  /** Jobs that were refused, with the reason. */
  readonly refused: string[] = [];
  readonly #heddle: Heddle;
  readonly #plan: JobLoadPlan;
  readonly #random: () => number;
  #next = 0;

  constructor(heddle: Heddle, plan: JobLoadPlan, random: () => number) {
    this.#heddle = heddle;
    this.#plan = plan;
    this.#random = random;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { liveCommands, liveTraining } = this.#plan;
    const lane = async (isTraining: boolean) => {
      while (!signal.aborted) await this.#one(isTraining, signal);
    };
    await Promise.all([
      ...Array.from({ length: liveCommands }, () => lane(false)),
      ...Array.from({ length: liveTraining }, () => lane(true)),
    ]);
  }

  /** Submits a job and waits for its end, or for the end of the load. */
  async #one(isTraining: boolean, signal: AbortSignal): Promise<void> {
    this.#next += 1;
    const name = `${this.#plan.run}-${this.#next}`;
    const lines = isTraining ? undefined : this.#linesOf(name);
    const spec = lines === undefined ? training(name) : this.#command(name, lines);
    const body = { ...spec, labels: { run: this.#plan.run } };
    const submittedAtMs = performance.now();
    // The same key each time: of tries whose answer was lost, one counts.
    const submit = () => this.#heddle.jobs.create(body, { idempotencyKey: name });
    try {
      const { job_id: id } = await untilAnswered(TRIES, submit);
      const ended = this.#endOf(id, submittedAtMs);
      this.accepted.push({ id, name, submittedAtMs, lines, ended });
      await Promise.race([ended, aborted(signal)]);
    } catch (error) {
      this.refused.push(`${name}: ${(error as Error).message}`);
      await sleep(1_000);
    }
  }

  #linesOf(name: string): readonly string[] {
    const count = 1 + Math.floor(this.#random() * MAX_LINES);
    return Array.from({ length: count }, (_, line) => `${name} line ${line + 1}`);
  }

  #command(name: string, lines: readonly string[]): JobSpec {
    const pause = (this.#random() * MAX_PAUSE_SECONDS).toFixed(2);
    const loop = `for i in $(seq 1 ${lines.length}); do echo "${name} line $i"; sleep ${pause}; done`;
    return { name, command: loop, resources: { cpu_cores: 0.05, memory_gb: 0.05 } };
  }

  async #endOf(id: string, submittedAtMs: number): Promise<EndedJob> {
    const state = await untilAnswered(TRIES, () => this.#heddle.jobs.wait(id)).then(
      ({ state: reached, failure }) =>
        failure ? `${reached}: ${failure.reason}: ${failure.message}` : reached,
      (error: Error) => `unknown: ${error.message}`,
    );
    return { state, afterMs: performance.now() - submittedAtMs };
  }
}

/** Some seconds of training over both parameter servers. */
function training(name: string): JobSpec {
  return {
    name,
    algorithm: "weave",
    tasks: 2,
    config: {
      program: "language_model",
      total_steps: 96,
      local_steps: 8,
      batch_size: 4,
      context_length: 32,
      hidden_size: 32,
      heads: 2,
      layers: 1,
      parameter_servers: 2,
    },
    checkpoint_config: { interval_seconds: 2 },
    resources: { cpu_cores: 0.2, memory_gb: 0.5 },
  };
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
