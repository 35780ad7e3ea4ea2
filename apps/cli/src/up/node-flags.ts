import { type ProcessKind, youngGenerationFlags } from "@heddle/base/process/young-generation";

const MEBIBYTE = 2 ** 20;

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
  return [
    "--enable-source-maps",
    ...youngGenerationFlags(kind),
    `--max-old-space-size=${Math.min(mostMiB, Math.max(leastMiB, wanted))}`,
  ];
}
