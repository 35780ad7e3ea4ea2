import { parseArgs } from "node:util";
import { summarizeSamples } from "../support/statistics.ts";
import { EtcdClient } from "./etcd-client.ts";
import { HeddleClient } from "./heddle-client.ts";
import type { KvClient } from "./kv-client.ts";

// The clients in their own process: concurrent callers, each with one call at a time.

/** The measurements of one run of the load. */
export interface KvLoadResult {
  readonly perSecond: number;
  /** All answered calls, including the warm-up's. */
  readonly calls: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failures: number;
  readonly firstFailure: string;
  /** CPU time of the clients as a share of the measured time. */
  readonly clientCpuShare: number;
}

const { values } = parseArgs({
  options: {
    store: { type: "string", default: "heddle" },
    address: { type: "string", default: "" },
    op: { type: "string", default: "put" },
    concurrency: { type: "string", default: "1" },
    seconds: { type: "string", default: "3" },
  },
});
const valueBytes = 256;
const keys = 1_000;
const warmupMs = 1_500;
const value = Buffer.alloc(valueBytes, "v");
const client: KvClient =
  values.store === "etcd" ? new EtcdClient(values.address) : new HeddleClient(values.address);

const startMs = performance.now() + warmupMs;
const endMs = startMs + Number(values.seconds) * 1000;
const latenciesMs: number[] = [];
let calls = 0;
let failures = 0;
let firstFailure = "";

await client.put("key-0", value);
let cpuAtStart = process.cpuUsage();
setTimeout(() => {
  cpuAtStart = process.cpuUsage();
}, warmupMs);
const callers = Array.from({ length: Number(values.concurrency) }, (_, at) => call(at));
await Promise.all(callers);
const { user, system } = process.cpuUsage(cpuAtStart);
const seconds = (performance.now() - startMs) / 1000;
const { p50, p99 } = summarizeSamples(latenciesMs);
const result: KvLoadResult = {
  perSecond: latenciesMs.length / seconds,
  calls,
  p50Ms: p50,
  p99Ms: p99,
  failures,
  firstFailure,
  clientCpuShare: (user + system) / 1e6 / seconds,
};
console.log(JSON.stringify(result));
client.close();
process.exit(0);

async function call(caller: number): Promise<void> {
  for (let turn = caller; ; turn += 7) {
    const sentMs = performance.now();
    if (sentMs > endMs) return;
    const key = `key-${turn % keys}`;
    try {
      await (values.op === "put" ? client.put(key, value) : client.read(key));
      calls++;
      if (sentMs >= startMs) latenciesMs.push(performance.now() - sentMs);
    } catch (error) {
      failures++;
      firstFailure ||= (error as Error).message;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}
