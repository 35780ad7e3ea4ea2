import { printTable } from "../support/table.ts";

/** What a step and an exchange cost, as measured on one machine (docs/benchmarks.md). */
interface Costs {
  /** Elements of the model. */
  readonly parameters: number;
  /** One local step of one worker. */
  readonly stepSeconds: number;
  /** What a server adds and gives, bytes/s of float32, at 64 MiB by TCP. */
  readonly pushBytesPerSecond: number;
  readonly pullBytesPerSecond: number;
  /** A call there and back, with what the processes do for it. */
  readonly callSeconds: number;
  /** The rate of each node's network. */
  readonly linkBytesPerSecond: number;
}

/** A way to train; bytes are of one element. */
interface Way {
  readonly name: string;
  readonly localSteps: number;
  readonly pushBytes: number;
  readonly pullBytes: number;
}

/** One row: seconds of a step, and how much of it the exchange leaves to computing. */
export interface ScalingRow {
  readonly way: string;
  readonly workers: number;
  readonly servers: number;
  readonly stepSeconds: number;
  readonly efficiency: number;
}

const COSTS: Costs = {
  parameters: 3_430_000,
  stepSeconds: 0.1,
  pushBytesPerSecond: 2.64e9,
  pullBytesPerSecond: 2.98e9,
  callSeconds: 2.4e-3,
  linkBytesPerSecond: 10e9 / 8,
};
const WAYS: readonly Way[] = [
  { name: "bsp, fp32", localSteps: 1, pushBytes: 4, pullBytes: 4 },
  { name: "bsp, int8 parts", localSteps: 1, pushBytes: 260 / 256, pullBytes: 4 },
  { name: "weave, H=32, int8", localSteps: 32, pushBytes: 260 / 256, pullBytes: 260 / 256 },
];
const WORKERS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000];

/**
 * A model, not a measurement: seconds of a step for 1 to 1,000 equal workers that begin at once on
 * own nodes, with one server for each 16. A server takes parts one after the other and so do its
 * reads; either its arithmetic or its link is what holds it up.
 */
export function modelScaling(costs: Costs = COSTS): ScalingRow[] {
  const rows = WAYS.flatMap((way) => WORKERS.map((workers) => rowOf(way, workers, costs)));
  printTable(
    "A model of scaling: 3.43 million parameters, 100 ms a step, 10 Gbit/s, a server for 16 workers",
    ["way", "workers", "servers", "step (ms)", "efficiency"],
    rows.map((row) => [
      row.way,
      row.workers,
      row.servers,
      row.stepSeconds * 1e3,
      `${(row.efficiency * 100).toFixed(1)} %`,
    ]),
  );
  return rows;
}

function rowOf(way: Way, workers: number, costs: Costs): ScalingRow {
  const servers = Math.max(1, Math.ceil(workers / 16));
  const elements = costs.parameters / servers;
  const whole = (rate: number) => (elements * 4) / rate;
  const link = (bytes: number) => (elements * bytes) / costs.linkBytesPerSecond;
  // What it costs a server to serve one worker, and a worker to be served by all servers.
  const push = Math.max(whole(costs.pushBytesPerSecond), link(way.pushBytes));
  const pull = Math.max((elements * way.pullBytes) / costs.pullBytesPerSecond, link(way.pullBytes));
  const atServer = workers * (push + pull);
  const atWorker = servers * (link(way.pushBytes) + link(way.pullBytes));
  const exchange = costs.callSeconds + Math.max(atServer, atWorker);
  const stepSeconds = costs.stepSeconds + exchange / way.localSteps;
  const efficiency = costs.stepSeconds / stepSeconds;
  return { way: way.name, workers, servers, stepSeconds, efficiency };
}
