import { benchRandom } from "./statistics.ts";

/** 4 MiB: more than a core's own caches hold, and less than the cache that cores share. */
const TABLE_LENGTH = 2 ** 20;
const READS = 1_000_000;

let table: Uint32Array | undefined;

/**
 * Nanoseconds of a read from 4 MiB whose place is known only after the one before it. On a machine
 * that shares its cache and memory with other tenants this swings by several times while plain
 * arithmetic does not, and everything that allocates swings with it: a round whose probe is high was
 * not taken on a quiet machine, whatever its load average says.
 */
export function memoryReadNs(): number {
  table ??= shuffledCycle(TABLE_LENGTH);
  let at = 0;
  const beganMs = performance.now();
  for (let i = 0; i < READS; i++) at = table[at]!;
  const ns = ((performance.now() - beganMs) * 1e6) / READS;
  // The chain's end is used, so that no compiler drops the reads.
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
