import { Dice } from "@heddle/simulation/dice";
import { SimulatedDisk } from "@heddle/simulation/simulated-disk";

/** What is on its way to the disk waits here while that is held up. */
interface Gate {
  held: (() => void)[] | undefined;
}

/** The simulated disk without simulated time: it is at once done, unless it is held up. */
export class MemoryFiles extends SimulatedDisk {
  readonly #gate: Gate;

  constructor() {
    const gate: Gate = { held: undefined };
    super({
      dice: new Dice(1, "memory files"),
      after: (_delayUs, run) => {
        if (gate.held) gate.held.push(run);
        else queueMicrotask(run);
      },
      latencyUs: () => 0,
      notify: (run) => run(),
      onDurable: () => undefined,
      onMisuse: (what) => {
        throw new Error(what);
      },
    });
    this.#gate = gate;
  }

  /** Lets nothing become durable until `release`. */
  hold(): void {
    this.#gate.held ??= [];
  }

  release(): void {
    const held = this.#gate.held ?? [];
    this.#gate.held = undefined;
    for (const run of held) run();
  }

  /** Lets every write and sync fail from now on. */
  fail(): void {
    this.faults.failures = 1;
  }
}
