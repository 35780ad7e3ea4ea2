/**
 * A processor finds a page of memory by tables that it keeps a small part of; a decode goes once
 * through all weights, and with pages of 4 KiB it waits for tables as well. Pages of 2 MiB make
 * decoding of SmolLM2-135M on one core 3 to 6 % faster. Linux gives them to memory that asks for them
 * where transparent huge pages are at `madvise` (the default of most distributions) or `always`, but
 * not to a mapped file: so weights are read into memory of the process's own, whose allocator asks.
 */

/**
 * Weights of at most this share of the memory at hand are read; larger ones stay a mapped file, whose
 * pages the system can take back. Several models may load at once.
 */
const READ_SHARE = 0.25;

const TUNABLE = "glibc.malloc.hugetlb";

/** Whether weights are read into the process's own memory and not mapped. */
export function readsWeights(weightsBytes: number, availableBytes: number): boolean {
  return weightsBytes <= availableBytes * READ_SHARE;
}

/** The environment in which glibc asks for huge pages; other C libraries do not look at it. */
export function withHugePages(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const given = environment["GLIBC_TUNABLES"] ?? "";
  if (given.includes(TUNABLE)) return environment;
  const tunables = `${given === "" ? "" : `${given}:`}${TUNABLE}=1`;
  return { ...environment, GLIBC_TUNABLES: tunables };
}
