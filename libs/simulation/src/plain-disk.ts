import { Dice } from "./dice.ts";
import { SimulatedDisk } from "./simulated-disk.ts";

/** A disk without latency, outside a simulated cluster; misuse throws. `answer` ends an operation. */
export function plainDisk(
  seed: number,
  answer: (run: () => void) => void = queueMicrotask,
): SimulatedDisk {
  return new SimulatedDisk({
    dice: new Dice(seed, "disk"),
    after: (_delayUs, run) => answer(run),
    latencyUs: () => 0,
    notify: (run) => run(),
    onDurable: () => undefined,
    onMisuse: (what) => {
      throw new Error(what);
    },
  });
}
