import { simulatedGpus } from "@heddle/node-agent/simulated-gpus";
import { createLogger } from "@heddle/observability/logger";
import { Dice } from "@heddle/simulation/dice";
import { startWorker } from "../../apps/worker/dist/worker.js";
import { scriptedPorts } from "../../apps/worker/test/scripted-ports.ts";
import { CLUSTER_TOKEN } from "./master.ts";
import { SimulatedProcess } from "./simulated-process.ts";
import type { WorkerMachine } from "./worker-machine.ts";
import type { ClusterWorld } from "./world.ts";

/** The GPUs of each machine. */
const GPUS = 2;

/** The time until a supervisor starts a worker again whose disk was full. */
const RESTART_US = 1_000_000;

/** A worker's process on its machine: the real worker, with programs that are events. */
export class WorkerInSimulation {
  readonly machine: WorkerMachine;
  readonly #world: ClusterWorld;
  readonly #masters: readonly string[];
  #process: SimulatedProcess | undefined;
  #starts = 0;
  /** Its machine is gone for good. */
  isGone = false;

  constructor(world: ClusterWorld, machine: WorkerMachine, masters: readonly string[]) {
    this.#world = world;
    this.machine = machine;
    this.#masters = masters;
  }

  get process(): SimulatedProcess | undefined {
    return this.#process;
  }

  start(): void {
    if (this.#process?.isAlive || this.isGone) return;
    const { queue, seed } = this.#world;
    const { name, clock, disk } = this.machine;
    const dice = new Dice(seed, `worker ${name} ${this.#starts++}`);
    const process = new SimulatedProcess(name, name, { queue, dice, clock, disk });
    this.#process = process;
    process
      .run(() => this.#run())
      .catch((error: Error) => {
        if (!process.isAlive) return;
        if (disk.isFull) {
          process.end();
          queue.after(RESTART_US, () => this.start());
          return;
        }
        this.#world.checker.demand(false, "a worker starts", () => `${name}: ${error.stack}`);
      });
  }

  /** As by SIGKILL: its tasks run on. */
  kill(): void {
    this.#process?.end();
  }

  async #run(): Promise<void> {
    const { name, directory } = this.machine;
    const log = createLogger({ service: "worker", level: "silent" });
    const gpus = simulatedGpus(`${GPUS}xH100-80GB`);
    const options = {
      dataDirectory: directory,
      name,
      grpcHost: name,
      grpcPort: 0,
      advertise: undefined,
      masters: this.#masters,
      clusterToken: CLUSTER_TOKEN,
      version: "simulated",
      engineDefaults: {},
      labels: {},
      taints: [],
      rack: "",
      fabric: "",
      simulatedGpus: gpus,
    };
    await startWorker(options as unknown as Parameters<typeof startWorker>[0], scriptedPorts, log);
    this.#world.trace(() => `${name}: the worker runs`);
  }
}
