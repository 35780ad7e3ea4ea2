import { Dice } from "@heddle/simulation/dice";
import { type MachineClock, type MachineDisk, SimulatedProcess } from "../simulated-process.ts";
import type { ClusterWorld } from "../world.ts";

/** The time until a supervisor starts a node again whose disk was full. */
const RESTART_US = 1_000_000;

/** A machine of one node, whose name is also its host. */
export interface NodeMachine {
  readonly name: string;
  readonly directory: string;
  readonly clock: MachineClock;
  readonly disk: MachineDisk;
}

/** A node's process on its machine, which may be killed and started again. */
export class NodeInSimulation<Machine extends NodeMachine = NodeMachine> {
  readonly machine: Machine;
  readonly #world: ClusterWorld;
  /** Starts the real program. */
  readonly #program: () => Promise<unknown>;
  #process: SimulatedProcess | undefined;
  #starts = 0;
  /** Its machine is gone for good. */
  isGone = false;

  constructor(world: ClusterWorld, machine: Machine, program: () => Promise<unknown>) {
    this.#world = world;
    this.machine = machine;
    this.#program = program;
  }

  get process(): SimulatedProcess | undefined {
    return this.#process;
  }

  start(): void {
    if (this.#process?.isAlive || this.isGone) return;
    const { queue, seed, trace, checker } = this.#world;
    const { name, clock, disk } = this.machine;
    const dice = new Dice(seed, `node ${name} ${this.#starts++}`);
    const process = new SimulatedProcess(name, name, { queue, dice, clock, disk });
    this.#process = process;
    process.run(this.#program).then(
      () => trace(() => `${name}: runs`),
      (error: Error) => {
        if (!process.isAlive) return;
        if (disk.isFull) {
          process.end();
          queue.after(RESTART_US, () => this.start());
          return;
        }
        checker.demand(false, "a node starts", () => `${name}: ${error.stack}`);
      },
    );
  }

  /** Has the effect of SIGKILL: a worker's tasks run on. */
  kill(): void {
    this.#process?.end();
  }
}
