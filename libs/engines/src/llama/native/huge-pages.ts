import { statSync } from "node:fs";
import type { ModelParams } from "./layouts.ts";

/**
 * A decode reads all weights once, and with pages of 4 KiB it also waits for page table walks.
 * - Pages of 2 MiB make decoding of SmolLM2-135M on one core 3 to 6 % faster.
 * - Linux gives them to anonymous memory that asks for them, not to a mapped file. Transparent huge
 *   pages must be at `madvise` (the default of most distributions) or `always`.
 * - So weights are read into the process's own memory, whose allocator asks for huge pages.
 */

/**
 * Weights of at most this share of the available memory are read: several models may load at once.
 * Larger ones stay a mapped file, whose pages the system can reclaim.
 */
const READ_SHARE = 0.25;

/** In llama_load_mode: the file is read into memory of the process's own. */
const LOAD_BY_READING = 0;

const TUNABLE = "glibc.malloc.hugetlb";

/** Has the library read the weights of a file, if they are to lie in huge pages. */
export function setLoadMode(
  params: Pick<ModelParams, "load_mode">,
  path: string,
  availableBytes = process.availableMemory(),
): void {
  // Where there is no file, the library says so, without its path.
  const weightsBytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (weightsBytes <= availableBytes * READ_SHARE) params.load_mode = LOAD_BY_READING;
}

/** The environment in which glibc asks for huge pages; other C libraries ignore it. */
export function withHugePages(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const given = environment["GLIBC_TUNABLES"] ?? "";
  if (given.includes(TUNABLE)) return environment;
  const tunables = `${given === "" ? "" : `${given}:`}${TUNABLE}=1`;
  return { ...environment, GLIBC_TUNABLES: tunables };
}
