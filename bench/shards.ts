import { join } from "node:path";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { cuttableModel } from "@heddle/engines/shards/cut-rules";
import { pullDemoWeights } from "./inference/model-file.ts";
import { BenchEngine } from "./shards/engines.ts";
import { rpcPeer, rpcRates } from "./shards/peer/ggml-rpc.ts";
import { evenPlan, Pipeline } from "./shards/pipeline.ts";
import { slowWays } from "./shards/slow-ways.ts";
import { withCleanup } from "./support/child-process.ts";
import { benchFolder, readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { median } from "./support/statistics.ts";
import { atLeast, atMost, printTable, printVerdicts } from "./support/table.ts";

// Greedy decoding of one model whole and in stages, each with one thread of computation. First the
// stages are threads of this process, whose hops cost next to nothing; then engine processes,
// beside ggml's RPC with as many servers.

const usage =
  "npm run bench:shards -- [--model-file FILE.gguf, else the demo weights] [--rounds N] [--steps N] [--stages 2,4]";
const options = readOptions(usage, ["model-file", "rounds", "steps", "stages"]);
const rounds = Number(options["rounds"] ?? 3);
const steps = Number(options["steps"] ?? 32);
const stageCounts = [1, ...(options["stages"] ?? "2,4").split(",").map(Number)];
const modelFile = options["model-file"] ?? (await pullDemoWeights());
const model = cuttableModel(await readGguf(modelFile));
const folder = join(benchFolder, "shards");

interface Way {
  readonly name: string;
  readonly stages: number;
  readonly groups: (sequences: number) => number;
}

const WAYS: readonly Way[] = stageCounts.flatMap((stages) =>
  stages === 1
    ? [{ name: "whole", stages, groups: () => 1 }]
    : [
        { name: `${stages} stages, 1 group`, stages, groups: () => 1 },
        {
          name: `${stages} stages, ${stages} groups`,
          stages,
          groups: (sequences: number) => Math.min(stages, sequences),
        },
      ],
);
const SEQUENCES = [1, 4, 8, 16, 32];
const PEER_STAGES = 2;

const rates = new Map<string, number[]>();
let isEqual = true;
for (let round = 0; round < rounds; round++) {
  const expected = new Map<number, string>();
  for (const way of WAYS) {
    // One pipeline at a time, so that stages share the cores with no other.
    const plan = evenPlan(model, way.stages);
    for (const sequences of SEQUENCES) {
      const pipeline = await Pipeline.open(model, modelFile, { plan, folder });
      const groups = way.groups(sequences);
      const { tokens, perSecond } = await pipeline.run({ sequences, groups, steps });
      await pipeline.close();
      const text = JSON.stringify(tokens);
      isEqual &&= (expected.get(sequences) ?? text) === text;
      expected.set(sequences, text);
      const key = `${way.name}/${sequences}`;
      rates.set(key, [...(rates.get(key) ?? []), perSecond]);
    }
  }
}
const rateOf = (name: string, sequences: number) => median(rates.get(`${name}/${sequences}`) ?? []);

printTable(
  `Tokens a second, medians of ${rounds}; one thread of computation for each stage`,
  ["sequences", ...WAYS.map(({ name }) => name)],
  SEQUENCES.map((sequences) => [
    String(sequences),
    ...WAYS.map(({ name }) => rateOf(name, sequences)),
  ]),
);
const gain = (sequences: number) =>
  rateOf("2 stages, 2 groups", sequences) / rateOf("whole", sequences);
// The engine as it serves: prompts, sampling and the way of the frames between processes included.
const engineRates = new Map<string, number[]>();
const engineWays = stageCounts.flatMap((count) =>
  count === 1
    ? [{ name: "whole", count, callsAtOnce: 1 }]
    : [
        { name: `${count} stages, 1 call at once`, count, callsAtOnce: 1 },
        { name: `${count} stages, ${count} calls at once`, count, callsAtOnce: count },
      ],
);
const peer = await rpcPeer();
const peerName = `ggml RPC, ${PEER_STAGES} servers`;
for (let round = 0; round < rounds; round++) {
  if (peer !== undefined) await withCleanup(() => measurePeer(peer));
  for (const { name, count, callsAtOnce } of engineWays) {
    const engine = await BenchEngine.open(model, modelFile, { count, folder, callsAtOnce });
    await engine.rate(1, steps);
    for (const sequences of SEQUENCES) {
      const key = `${name}/${sequences}`;
      const rate = await engine.rate(sequences, steps);
      engineRates.set(key, [...(engineRates.get(key) ?? []), rate]);
    }
    await engine.close();
  }
}
async function measurePeer(libraries: string): Promise<void> {
  const load = { modelFile, servers: PEER_STAGES, sequences: SEQUENCES, steps };
  for (const [at, rate] of (await rpcRates(libraries, load)).entries()) {
    const key = `${peerName}/${SEQUENCES[at]}`;
    engineRates.set(key, [...(engineRates.get(key) ?? []), rate]);
  }
}
const engineRateOf = (name: string, sequences: number) =>
  median(engineRates.get(`${name}/${sequences}`) ?? []);
const engineColumns = [
  ...engineWays.map(({ name }) => name),
  ...(peer === undefined ? [] : [peerName]),
];
printTable(
  `Tokens a second of the engine, medians of ${rounds}; a process with one thread for each stage`,
  ["sequences", ...engineColumns],
  SEQUENCES.map((sequences) => [
    String(sequences),
    ...engineColumns.map((name) => engineRateOf(name, sequences)),
  ]),
);
// The same with slow links between workers.
const WAY_STAGES = 4;
const HOPS_MS = [1, 5];
const WAY_SEQUENCES = [1, 16];
const wayRates = new Map<string, number>();
for (const hopMs of HOPS_MS) {
  for (const route of ["hub", "ring"] as const) {
    for (const callsAtOnce of [1, WAY_STAGES]) {
      const way = slowWays(route, WAY_STAGES, hopMs);
      const how = { count: WAY_STAGES, folder, callsAtOnce, way };
      const engine = await BenchEngine.open(model, modelFile, how);
      await engine.rate(1, steps);
      for (const sequences of WAY_SEQUENCES) {
        const key = `${hopMs} ms, ${sequences} sequences/${route}, ${callsAtOnce} at once`;
        wayRates.set(key, await engine.rate(sequences, steps));
      }
      await engine.close();
    }
  }
}
const wayColumns = ["hub, 1", "ring, 1", `hub, ${WAY_STAGES}`, `ring, ${WAY_STAGES}`];
printTable(
  `Tokens a second of ${WAY_STAGES} stages, by the time of a way between workers`,
  ["a way and sequences", ...wayColumns.map((name) => `${name} at once`)],
  HOPS_MS.flatMap((hopMs) =>
    WAY_SEQUENCES.map((sequences) => {
      const row = `${hopMs} ms, ${sequences} sequences`;
      const rateAt = (name: string) => wayRates.get(`${row}/${name} at once`) ?? 0;
      return [row, ...wayColumns.map(rateAt)];
    }),
  ),
);
const againstPeer = (sequences: number) => {
  const ours = engineRateOf("2 stages, 2 calls at once", sequences);
  const bar = `2 stages of the engine against ggml's RPC, ${sequences} sequences`;
  return atLeast(bar, ours / engineRateOf(peerName, sequences), 1.5, "x");
};
/**
 * The time that a step of one sequence takes for each way between the processes: there and back.
 */
const hopMs =
  (1_000 / engineRateOf("2 stages, 1 call at once", 1) - 1_000 / engineRateOf("whole", 1)) / 2;
printVerdicts([
  atLeast("all tokens equal to the whole model's (1 is yes)", isEqual ? 1 : 0, 1),
  ...(stageCounts.includes(2)
    ? [
        atLeast("2 stages against the whole with one thread, 8 sequences", gain(8), 0.9, "x"),
        atLeast("2 stages against the whole with one thread, 16 sequences", gain(16), 1.2, "x"),
        ...(peer === undefined ? [] : [8, 16].map(againstPeer)),
        atMost("what a hop adds to a step, ms", hopMs, 0.5),
      ]
    : []),
]);
writeReport(options, "shards", {
  rates: Object.fromEntries(rates),
  engineRates: Object.fromEntries(engineRates),
  wayRates: Object.fromEntries(wayRates),
  isEqual,
});
