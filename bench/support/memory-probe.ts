import { benchRandom } from "./statistics.ts";

/** 4 MiB: more than a core's own caches hold, and less than the cache that cores share. */
const TABLE_LENGTH = 2 ** 20;
const READS = 1_000_000;

let table: Uint32Array | undefined;

/**
 * Nanoseconds of a dependent read in 4 MiB. Next to other tenants it varies by several times while
 * plain arithmetic does not, and everything that allocates varies with it. A round with a high
 * value ran on a noisy machine, whatever its load average.
 */
export function memoryReadNs(): number {
  table ??= shuffledCycle(TABLE_LENGTH);
  let at = 0;
  const beganMs = performance.now();
  for (let i = 0; i < READS; i++) at = table[at]!;
  const ns = ((performance.now() - beganMs) * 1e6) / READS;
  // Uses the chain's end, so that no compiler drops the reads.
  if (at >= TABLE_LENGTH) throw new Error("the table leads out of itself");
  return ns;
}

/** One cycle through all places (Sattolo's shuffle). */
function shuffledCycle(length: number): Uint32Array {
  const random = benchRandom(1);
  const cycle = Uint32Array.from({ length }, (_, index) => index);
  for (let last = length - 1; last > 0; last--) {
    const other = Math.floor(random() * last);
    [cycle[last], cycle[other]] = [cycle[other]!, cycle[last]!];
  }
  return cycle;
}
