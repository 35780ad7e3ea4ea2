import { AppError } from "@heddle/base/errors";
import type { ShardKey } from "./shard-registry.ts";

/** Updates of one job whose sums are remembered, for retried calls. */
const KEPT_UPDATES = 4;
/** Sums of all jobs. */
const MAX_SUMS = 4096;

interface Sum {
  readonly key: ShardKey;
  readonly version: number;
  readonly parts: Map<number, number>;
  readonly total: PromiseWithResolvers<number>;
}

/** On shard 0's server: sums the squared norms of all shards' parts of an update. */
export class NormExchange {
  readonly #sums: Sum[] = [];

  /**
   * Resolves when all `shards` have sent theirs; summed in their order, so that the bits are always
   * the same.
   */
  add(
    key: ShardKey,
    version: number,
    squares: number,
    shards: number,
    signal: AbortSignal,
  ): Promise<number> {
    const sum = this.#find(key, version);
    sum.parts.set(key.shard, squares);
    if (sum.parts.size === shards) {
      const ordered = [...sum.parts].sort(([a], [b]) => a - b);
      sum.total.resolve(ordered.reduce((total, [, part]) => total + part, 0));
    }
    return Promise.race([sum.total.promise, rejection(signal)]);
  }

  #find(key: ShardKey, version: number): Sum {
    const ofJob = this.#sums.filter(({ key: other }) => other.jobId === key.jobId);
    const known = ofJob.find((sum) => sum.version === version && sum.key.attempt === key.attempt);
    if (known) return known;
    if (ofJob.length >= KEPT_UPDATES) this.#sums.splice(this.#sums.indexOf(ofJob[0] as Sum), 1);
    if (this.#sums.length >= MAX_SUMS) this.#sums.shift();
    const sum = { key, version, parts: new Map(), total: Promise.withResolvers<number>() };
    this.#sums.push(sum);
    return sum;
  }
}

function rejection(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const onAbort = () => reject(new AppError("cancelled", "the shard cancelled the sum"));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
  });
}
