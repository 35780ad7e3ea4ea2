import { MasterGroup } from "../../apps/master/test/master-group.ts";
import { summarizeSamples } from "../support/statistics.ts";

/** The results of whole masters under `POST /api/v1/keys`. */
export interface HttpWrites {
  readonly concurrency: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Three whole masters: HTTP, JSON, hashing of a key and the control state, through their leader. */
export async function measureHttpWrites(
  concurrencies: readonly number[],
  seconds: number,
): Promise<HttpWrites[]> {
  const group = new MasterGroup(3);
  try {
    await group.startAll();
    const leader = await group.leader();
    const results: HttpWrites[] = [];
    for (const concurrency of concurrencies) {
      const times: number[] = [];
      const startMs = performance.now();
      const caller = async (): Promise<void> => {
        while (performance.now() - startMs < seconds * 1000) {
          const sentMs = performance.now();
          await group.createKey(leader, "bench");
          times.push(performance.now() - sentMs);
        }
      };
      await Promise.all(Array.from({ length: concurrency }, caller));
      const perSecond = times.length / ((performance.now() - startMs) / 1000);
      const { p50, p99 } = summarizeSamples(times);
      results.push({ concurrency, perSecond, p50Ms: p50, p99Ms: p99 });
    }
    return results;
  } finally {
    await group.close();
  }
}
