import { toAppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import { Dice } from "@heddle/simulation/dice";
import type { SimulatedMaster } from "./master.ts";
import type { ClusterWorld } from "./world.ts";

/** Submits jobs through any master, and remembers those that were accepted. */
export class JobClients {
  /** Ids of jobs whose submission was answered. */
  readonly accepted = new Set<string>();
  readonly #world: ClusterWorld;
  readonly #masters: readonly SimulatedMaster[];
  readonly #meanGapUs: number;
  readonly #dice: Dice;
  #number = 0;
  #isStopped = false;

  constructor(world: ClusterWorld, masters: readonly SimulatedMaster[], meanGapUs: number) {
    this.#meanGapUs = meanGapUs;
    this.#world = world;
    this.#masters = masters;
    this.#dice = new Dice(world.seed, "clients");
  }

  start(): void {
    const gapUs = -Math.log(1 - this.#dice.random()) * this.#meanGapUs;
    this.#world.queue.after(gapUs, () => {
      if (this.#isStopped) return;
      this.#submit();
      this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
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
    return submitJobRequest.parse({
      name: `job-${this.#number}`,
      command: "true",
      tasks: dice.pick([1, 1, 1, 2, 3]),
      resources: { gpu_count: gpus },
      retry_limit: dice.pick([0, 1, 3]),
    });
  }
}
