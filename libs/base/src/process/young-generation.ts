/** A process of a cluster that is started by itself. */
export type ProcessKind = "master" | "worker" | "parameter-server";

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

/** Node's flags for the young generation of a process. */
export function youngGenerationFlags(kind: ProcessKind): string[] {
  const mebibytes = SEMI_SPACE_MIB[kind];
  return [`--min-semi-space-size=${mebibytes}`, `--max-semi-space-size=${mebibytes}`];
}
