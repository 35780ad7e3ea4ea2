import type { ProcessKind } from "./supervised-process.ts";

const MEBIBYTE = 2 ** 20;

/**
 * V8's young generation is two of these. By default it grows to 128 MiB in a busy process, although
 * little survives in it. A fixed size keeps the process's memory flat. Masters handle the most
 * requests and collect less often with more.
 */
const SEMI_SPACE_MIB: Readonly<Record<ProcessKind, number>> = {
  master: 32,
  worker: 8,
  "parameter-server": 8,
};

/**
 * The bound of the old generation: a share of the machine's memory, within what a process can use.
 * Above 2 GiB V8 lets it grow to four times the survivors of the last full collection, below that
 * at most to twice as much. A busy master's 40 MiB grew to 160.
 */
const OLD_SPACE = { share: 1 / 8, leastMiB: 256, mostMiB: 2_000 };

/** Node's flags for a process of the cluster, by the machine's memory. */
export function nodeFlags(kind: ProcessKind, memoryBytes: number): string[] {
  const { share, leastMiB, mostMiB } = OLD_SPACE;
  const wanted = Math.floor((memoryBytes * share) / MEBIBYTE);
  const semiSpaceMiB = SEMI_SPACE_MIB[kind];
  return [
    "--enable-source-maps",
    `--min-semi-space-size=${semiSpaceMiB}`,
    `--max-semi-space-size=${semiSpaceMiB}`,
    `--max-old-space-size=${Math.min(mostMiB, Math.max(leastMiB, wanted))}`,
  ];
}
