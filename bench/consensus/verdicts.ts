import type { Verdict } from "../support/table.ts";
import { atLeast, atMost } from "../support/table.ts";
import type { ConsensusLoad, ConsensusThroughput } from "./throughput.ts";

/** The minimum ratio of our rate to the peer's per workload; the c=1 latency is checked as well. */
const RATE_BARS: readonly (ConsensusLoad & { readonly bar: number })[] = [
  { op: "put", concurrency: 1, bar: 1 },
  { op: "put", concurrency: 16, bar: 3 },
  { op: "put", concurrency: 128, bar: 5 },
  { op: "read", concurrency: 128, bar: 2 },
];

/** All workloads with a bar. */
export const WORKLOADS: readonly ConsensusLoad[] = RATE_BARS.map(({ op, concurrency }) => ({
  op,
  concurrency,
}));

/** Empty where the peer was not measured. */
export function judgeThroughput(results: readonly ConsensusThroughput[]): Verdict[] {
  return RATE_BARS.flatMap(({ op, concurrency, bar }) => {
    const find = (store: string) =>
      results.find((r) => r.store === store && r.op === op && r.concurrency === concurrency);
    const [ours, peer] = [find("heddle"), find("etcd")];
    if (!ours || !peer) return [];
    const name = `${op}s/s, ${concurrency} at once`;
    const verdicts = [atLeast(`${name} against etcd`, ours.perSecond / peer.perSecond, bar, "x")];
    if (op === "put" && concurrency === 1) {
      verdicts.push(atMost("p50 of a put, 1 at once, ms (etcd's)", ours.p50Ms, peer.p50Ms));
    }
    return verdicts;
  });
}
