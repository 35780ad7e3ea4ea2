import { here, type SimulatedProcess } from "../simulated-process.ts";
import { worldOf } from "../world.ts";

/** The guard of a simulated machine, which outlives the worker that started it. */
export class LeaseGuard {
  readonly #process: SimulatedProcess;

  constructor() {
    const process = here();
    if (!process) throw new Error("a guard of no simulated process");
    this.#process = process;
  }

  guard(expiresAtMs: number): void {
    this.#machine?.guard(expiresAtMs);
  }

  end(): void {
    this.#machine?.guard(undefined);
  }

  get #machine() {
    return worldOf(this.#process).machines.get(this.#process.machine);
  }
}
