import { join } from "node:path";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { cuttableModel } from "@heddle/engines/shards/cut-rules";
import { pullDemoWeights } from "./inference/model-file.ts";
import { BenchEngine } from "./shards/engines.ts";
import { rpcPeer } from "./shards/peer/ggml-rpc.ts";
import { evenPlan, Pipeline } from "./shards/pipeline.ts";
import { RatedRounds, type Spread } from "./shards/rated-rounds.ts";
import { ONE_CALL, RPC_PEER, servedWays, TWO_CALLS, WHOLE } from "./shards/served-ways.ts";
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
const PEER_SEQUENCES = [8, 16];
/** With few answers each has more tokens, so that a turn takes seconds. */
const LEAST_TOKENS = 192;
const HOP_TURNS = { rounds: 60, sequences: [1], steps: 32, leastTokens: 0 };

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
// The engine as it serves: prompts, sampling and the way of the frames between processes included. Each
// way has its turn in each round, so that what is compared had the same load beside it.
const rated = new RatedRounds();
// A hop is small beside a step: many short turns side by side, so that other load affects both alike.
const hopRounds = new RatedRounds();
await withCleanup(async () => {
  const rpc = await rpcPeer();
  const servers = await servedWays({ model, modelFile, folder, stageCounts, rpc });
  await rated.measure(servers, { rounds, sequences: SEQUENCES, steps, leastTokens: LEAST_TOKENS });
  const ofHop = servers.filter(({ name }) => name === WHOLE || name === ONE_CALL);
  await hopRounds.measure(ofHop, HOP_TURNS);
  await Promise.all(servers.map((server) => server.close()));
});
printTable(
  `Tokens a second of the engine, medians of ${rounds}; a process with one thread for each stage`,
  ["sequences", ...rated.names],
  SEQUENCES.map((sequences) => [
    String(sequences),
    ...rated.names.map((name) => rated.of(name, sequences)),
  ]),
);
const hasTwo = stageCounts.includes(2);
const hasPeer = rated.names.includes(RPC_PEER);
const against = (sequences: number) =>
  rated.spread([TWO_CALLS, RPC_PEER], sequences, (ours, theirs) => ours / theirs);
/** The time that a step of one sequence takes for each way between the processes: there and back. */
const hop = hopRounds.spread([ONE_CALL, WHOLE], 1, (staged, whole) => 500 / staged - 500 / whole);
const compared = new Map<string, Spread>([
  ...(hasPeer ? PEER_SEQUENCES : []).map((sequences): [string, Spread] => [
    `2 stages to ggml's RPC, ${sequences} sequences`,
    against(sequences),
  ]),
  ["a hop of a step, ms", hop],
]);
if (hasTwo) {
  printTable(
    "Compared within each round",
    ["what", "median", "least", "most"],
    [...compared].map(([what, { median: middle, least, most }]) => [what, middle, least, most]),
  );
}
// The same with slow links between workers.
const WAY_STAGES = 4;
const HOPS_MS = [1, 5];
const WAY_SEQUENCES = [1, 16];
const wayRates = new Map<string, number>();
for (const hopMs of HOPS_MS) {
  for (const route of ["hub", "ring"] as const) {
    for (const callsAtOnce of [1, WAY_STAGES]) {
      const way = slowWays(route, WAY_STAGES, hopMs);
      const how = { name: route, count: WAY_STAGES, folder, callsAtOnce, way };
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
  const bar = `2 stages of the engine against ggml's RPC, ${sequences} sequences`;
  return atLeast(bar, against(sequences).median, 1.5, "x");
};
printVerdicts([
  atLeast("all tokens equal to the whole model's (1 is yes)", isEqual ? 1 : 0, 1),
  ...(hasTwo
    ? [
        atLeast("2 stages against the whole with one thread, 8 sequences", gain(8), 0.9, "x"),
        atLeast("2 stages against the whole with one thread, 16 sequences", gain(16), 1.2, "x"),
        ...(hasPeer ? PEER_SEQUENCES.map(againstPeer) : []),
        atMost("what a hop adds to a step, ms", hop.median, 0.5),
      ]
    : []),
]);
writeReport(options, "shards", {
  rates: Object.fromEntries(rates),
  engineRates: Object.fromEntries(rated.rates),
  wayRates: Object.fromEntries(wayRates),
  isEqual,
});
