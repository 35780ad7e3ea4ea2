import type { ProcessKind } from "./supervised-process.ts";

const MEBIBYTE = 2 ** 20;

/**
 * V8's young generation is two of these. Left alone it grows to 128 MiB while a process
 * is busy, though hardly anything in it survives; so it has its whole size from the start, and the
 * process's memory is flat. Masters handle the most requests, and collect less often with more.
 */
const SEMI_SPACE_MIB: Readonly<Record<ProcessKind, number>> = {
  master: 32,
  worker: 8,
  "parameter-server": 8,
};

/**
 * The old generation's bound: a share of the machine's memory, within what a process can use. From
 * 2 GiB on V8 lets the old generation grow to four times what lived at the last full collection, and
 * below that to twice as much at most: a busy master's 40 MiB went up to 160, and their pages stay
 * with the process.
 */
const OLD_SPACE = { share: 1 / 8, leastMiB: 256, mostMiB: 2_000 };

/** Node's flags for a process of the cluster on a machine with so much memory. */
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
