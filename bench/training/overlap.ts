import { join } from "node:path";
import { onnxBackend } from "@heddle/backends/onnx-backend";
import { seededRandom } from "@heddle/base/random";
import { ThreadedExchange } from "@heddle/parameters/node-group/threaded-exchange";
import { initialParameters } from "@heddle/training/initialize";
import { elementCount } from "@heddle/training/ir/value";
import { supervisedProgram } from "@heddle/training/supervised/supervised-program";
import { rowBatches } from "@heddle/training/weave/batches";
import type { FragmentExchange } from "@heddle/training/weave/fragment-exchange";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { Child } from "../support/child-process.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { median } from "../support/statistics.ts";
import { openJob, startParameterProcess } from "./parameter-process.ts";

/** One way of exchanging a model over one link. */
export interface OverlapFigure {
  readonly name: string;
  /** Medians over the rounds of all turns but the first of each. */
  readonly roundMs: number;
  /** The part of it in which the worker waited for an exchange. */
  readonly waitedMs: number;
  /** Bytes of one exchange, pushed and pulled. */
  readonly exchangeBytes: number;
}

const [LOCAL_STEPS, ROUNDS, BATCH] = [16, 6, 256];
const LINK = { delayMs: 3, megabytesPerSecond: 20 };
const SHAPE = { features: 64, outputs: 1, task: "regression", hidden: [512, 512] } as const;
const program = supervisedProgram(SHAPE, BATCH);
const elements = program.parameters.reduce((sum, { shape }) => sum + elementCount(shape), 0);
const specs = program.parameters.map(({ name, shape }) => ({ name, shape, type: "f32" as const }));

interface Way {
  readonly name: string;
  readonly fragments: number;
  readonly overlap: number;
  readonly slow: boolean;
}

const WAYS: readonly Way[] = [
  { name: "no slow link, F=1, tau=0", fragments: 1, overlap: 0, slow: false },
  { name: "F=1, tau=0", fragments: 1, overlap: 0, slow: true },
  { name: "F=1, tau=15", fragments: 1, overlap: 15, slow: true },
  { name: "F=4, tau=12", fragments: 4, overlap: 12, slow: true },
];

/**
 * A worker with a slow link, with and without exchanges during its compute; turns are interleaved.
 */
export async function measureOverlap(turns: number): Promise<OverlapFigure[]> {
  const { address: server } = await startParameterProcess();
  const link = await startLink(server);
  const rounds = new Map(WAYS.map((way) => [way, [] as { ms: number; waitedMs: number }[]]));
  const bytes = new Map<Way, number>();
  for (let turn = 0; turn < turns; turn++) {
    for (const way of WAYS) {
      const taken = await train(way, way.slow ? link : server);
      const reported = taken.rounds.map(
        (one) => `${one.ms.toFixed(0)} (${one.waitedMs.toFixed(0)})`,
      );
      console.log(`${way.name}: rounds of ${reported.join(", ")} ms (of which waited)`);
      rounds.get(way)?.push(...taken.rounds);
      bytes.set(way, taken.exchangeBytes);
    }
  }
  return WAYS.map((way) => ({
    name: way.name,
    roundMs: median((rounds.get(way) ?? []).map(({ ms }) => ms)),
    waitedMs: median((rounds.get(way) ?? []).map(({ waitedMs }) => waitedMs)),
    exchangeBytes: bytes.get(way) ?? 0,
  }));
}

async function startLink(server: string): Promise<string> {
  const port = server.slice(server.lastIndexOf(":") + 1);
  const child = new Child({
    name: "a slow link",
    command: process.execPath,
    args: [
      join(repositoryRoot, "bench/training/slow-link.mjs"),
      port,
      String(LINK.delayMs),
      String(LINK.megabytesPerSecond),
    ],
    logFile: join(benchFolder, "slow-link.log"),
  });
  return `127.0.0.1:${(await child.line(/listens on (\d+)/, 20_000))[1]}`;
}

async function train({ fragments, overlap }: Way, server: string) {
  const job = await openJob({
    parameters: specs,
    workers: 1,
    fragments,
    consistency: { kind: "bsp" },
    learningRate: 0.8,
    compression: "none",
    servers: Array.from({ length: fragments }, () => server),
    optimizer: { kind: "sgd", momentum: 0.4, nesterov: true },
  });
  const options = { ...job, rank: 0, host: "127.0.0.1", paths: ["grpc"] } as const;
  const alone = { member: 0, members: 1, socketPath: "" };
  const exchange = await ThreadedExchange.start(
    options,
    Array.from({ length: fragments }, () => alone),
  );
  const parameters = initialParameters(program.parameters, seededRandom(1));
  await exchange.initialize(parameters);
  const rounds: { ms: number; waitedMs: number }[] = [];
  const waits = timed(exchange);
  let lastMs = performance.now();
  await runWeaveWorker({
    program,
    parameters,
    batch: BATCH,
    done: 0,
    client: exchange,
    exchange: waits.exchange,
    config: {
      total_steps: LOCAL_STEPS * ROUNDS,
      local_steps: LOCAL_STEPS,
      fragments,
      overlap_steps: overlap,
      mixing_factor: overlap > 0 ? 0.5 : 0,
      learning_rate: 1e-3,
      warmup_steps: 0,
      max_grad_norm: 1,
    },
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    backend: onnxBackend({ device: "cpu", threads: 1 }),
    batches: rowBatches(rows(), BATCH, seededRandom(2)),
    signal: new AbortController().signal,
    report: async () => {
      const nowMs = performance.now();
      rounds.push({ ms: nowMs - lastMs, waitedMs: waits.take() });
      lastMs = nowMs;
    },
  });
  await exchange.close();
  // The first includes compilation, the last exchanges all fragments at once.
  return { rounds: rounds.slice(1, -1), exchangeBytes: (2 * elements * 4) / fragments };
}

/** The same exchange, with its user's waiting time. */
function timed(exchange: ThreadedExchange) {
  let waitedMs = 0;
  const finish = async (fragment: number) => {
    const sinceMs = performance.now();
    await exchange.finish(fragment);
    waitedMs += performance.now() - sinceMs;
  };
  const watched: FragmentExchange = {
    shared: exchange.shared,
    part: exchange.part,
    finish,
    pullAll: () => exchange.pullAll(),
    begin: (fragment, round, terms) => exchange.begin(fragment, round, terms),
    settle: () => exchange.settle(),
  };
  const take = () => {
    const taken = waitedMs;
    waitedMs = 0;
    return taken;
  };
  return { exchange: watched, take };
}

function rows() {
  const random = seededRandom(3);
  const count = 1024;
  const features = Float32Array.from({ length: count * SHAPE.features }, () => random() - 0.5);
  const target = Float32Array.from({ length: count }, (_, i) => features[i * SHAPE.features] ?? 0);
  return { features, target, count };
}
