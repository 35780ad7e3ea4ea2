import { toAppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import { Dice } from "@heddle/simulation/dice";
import type { SimulatedMaster } from "./master.ts";
import { COUNTING } from "./training/counting-algorithm.ts";
import type { ClusterWorld } from "./world.ts";

/** Jobs that are submitted at once. */
const BURSTS = [1, 1, 1, 1, 4];
/** The share of jobs that train, where some do. */
const TRAINING_SHARE = 0.5;
const MAX_ROUNDS = 40;

export interface JobClientsOptions {
  /** The mean time between two submissions. */
  readonly meanGapUs: number;
  /** Filled with the ids of jobs whose submission was answered. */
  readonly accepted: Set<string>;
  /** The GPU quota of the project whose jobs these are. */
  readonly quotaGpus: number | undefined;
  /** Whether some jobs train. */
  readonly trains: boolean;
}

/** Submits jobs through any master, and remembers those that were accepted. */
export class JobClients {
  /** Ids of jobs whose submission was answered. */
  readonly accepted: Set<string>;
  readonly #world: ClusterWorld;
  readonly #masters: readonly SimulatedMaster[];
  readonly #meanGapUs: number;
  readonly #quotaGpus: number | undefined;
  readonly #dice: Dice;
  /** The random source of jobs that train; undefined where none does. */
  readonly #training: Dice | undefined;
  #number = 0;
  #isStopped = false;

  constructor(
    world: ClusterWorld,
    masters: readonly SimulatedMaster[],
    { meanGapUs, accepted, quotaGpus, trains }: JobClientsOptions,
  ) {
    this.#meanGapUs = meanGapUs;
    this.accepted = accepted;
    this.#quotaGpus = quotaGpus;
    this.#world = world;
    this.#masters = masters;
    this.#dice = new Dice(world.seed, "clients");
    this.#training = trains ? new Dice(world.seed, "training jobs") : undefined;
  }

  start(): void {
    const gapUs = -Math.log(1 - this.#dice.random()) * this.#meanGapUs;
    this.#world.queue.after(gapUs, () => {
      if (this.#isStopped) return;
      if (this.#number === 0) this.#setQuota();
      for (let left = this.#dice.pick(BURSTS); left > 0; left--) this.#submit();
      this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
  }

  #setQuota(): void {
    const gpus = this.#quotaGpus;
    const { process, plane } = this.#dice.pick(this.#masters);
    if (gpus === undefined || !process || !plane || process.isPaused) return;
    process.run(() => {
      const project = { name: "default", weight: 1, quota: { gpuMilli: gpus * 1_000 } };
      const command = { type: "project.set", atMs: Date.now(), ...project } as const;
      plane.propose(command).catch(() => undefined);
    });
  }

  #submit(): void {
    const { process, plane } = this.#dice.pick(this.#masters);
    const jobId = `job_${String(++this.#number).padStart(26, "0")}`;
    const spec = this.#spec();
    if (!process || !plane || process.isPaused) return;
    process.run(() => {
      const command = { type: "job.submit", atMs: Date.now(), jobId, spec } as const;
      plane.propose(command).then(
        ({ ok }) => {
          if (ok) this.accepted.add(jobId);
          this.#world.trace(() => `client: ${jobId} is ${ok ? "accepted" : "refused"}`);
        },
        (error: unknown) =>
          this.#world.trace(() => `client: ${jobId}: ${toAppError(error).message}`),
      );
    });
  }

  #spec(): SubmitJob {
    const dice = this.#dice;
    const gpus = dice.pick([0, 0.5, 1, 1, 2]);
    const spec = {
      name: `job-${this.#number}`,
      command: "true",
      tasks: dice.pick([1, 1, 1, 2, 3]),
      resources: { gpu_count: gpus },
      retry_limit: dice.pick([0, 1, 3]),
    };
    const trains = this.#training?.chance(TRAINING_SHARE);
    return submitJobRequest.parse(trains ? { ...spec, ...this.#trainingSpec(spec) } : spec);
  }

  #trainingSpec({ tasks }: { readonly tasks: number }) {
    const dice = this.#training ?? this.#dice;
    const consistency = dice.pick(["asp", "asp", "bsp", "ssp"]);
    return {
      command: undefined,
      algorithm: COUNTING,
      config: {
        backend: "reference",
        rounds: dice.whole(2, MAX_ROUNDS),
        parameter_servers: dice.pick([1, 2, 2]),
        consistency,
        ...(consistency === "ssp" && { staleness: dice.whole(0, 3) }),
      },
      failure_tolerance: tasks > 1 ? dice.pick([0, 0, 1]) : 0,
    };
  }
}
