import { withCleanup } from "./support/child-process.ts";
import { readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { mean, median } from "./support/statistics.ts";
import { atLeast, formatNumber, printTable, printVerdicts, type Verdict } from "./support/table.ts";
import { measureSteps, type StepFigure } from "./training/compute.ts";
import { measureDataPlane } from "./training/data-plane.ts";
import { judgeDataPlane } from "./training/data-plane-bars.ts";
import { measureFragments } from "./training/fragments.ts";
import { measureOverlap, type OverlapFigure } from "./training/overlap.ts";
import { measurePpo, type PpoFigure } from "./training/ppo.ts";
import { measurePytorch } from "./training/pytorch-peer.ts";
import { modelScaling } from "./training/scaling.ts";
import { measureSimdAdd, type SimdAddFigure } from "./training/simd-add.ts";
import { measureWeave, type TrainingFigure } from "./training/weave.ts";

// The data plane of training beside grpc-js and C, the compute of one core beside PyTorch, and the
// quality of training.

const usage = `npm run bench:training -- [--only data,add,steps,weave,overlap,ppo,scaling,fragments]
  [--rounds N] [--weave-steps N] [--seeds N] [--first-seed N] [--timesteps N] [--environments NAME,...]
  [--python PROGRAM] [--grpc-cpp PROGRAM] [--ps-lite PROGRAM]`;
const options = readOptions(usage, [
  "only",
  "rounds",
  "weave-steps",
  "seeds",
  "timesteps",
  "environments",
  "python",
  "grpc-cpp",
  "ps-lite",
  "first-seed",
]);
const only = (options["only"] ?? "data,add,steps,weave,overlap,ppo,scaling").split(",");
const number = (name: string, standard: number) => Number(options[name] ?? standard);
const rounds = number("rounds", 9);
/** This many seeds; those before `first-seed` may have been used to choose settings. */
const seedsFrom = (count: number): number[] =>
  Array.from({ length: number("seeds", count) }, (_, i) => number("first-seed", 1) + i);
/** CleanRL's published rate on CartPole, steps/s. */
const CLEANRL_STEPS_PER_SECOND = 4600;

/** The required mean return over the seeds; none for those without a bar. */
const RETURNS: Readonly<Record<string, number>> = { "CartPole-v1": 490, "Acrobot-v1": -80 };

await withCleanup(async () => {
  const verdicts: Verdict[] = [];
  const report: Record<string, object> = {};
  if (only.includes("data")) {
    const figures = await measureDataPlane(rounds, {
      grpcCpp: options["grpc-cpp"],
      psLite: options["ps-lite"],
    });
    report["dataPlane"] = figures;
    verdicts.push(...judgeDataPlane(figures));
  }
  if (only.includes("add")) {
    const figures = measureSimdAdd(rounds);
    report["simdAdd"] = figures;
    verdicts.push(...judgeAdd(figures));
  }
  if (only.includes("steps")) {
    const figures: StepRound[] = [];
    for (let round = 1; round <= rounds; round++) {
      const ours = await measureSteps();
      figures.push({ ours, peer: measurePytorch(options["python"] ?? "python3") });
    }
    report["steps"] = figures;
    verdicts.push(...judgeSteps(figures));
  }
  if (only.includes("weave")) {
    const figures = await measureWeave(number("weave-steps", 10_240), seedsFrom(3));
    report["weave"] = figures;
    verdicts.push(...judgeWeave(figures));
  }
  if (only.includes("fragments")) {
    report["fragments"] = await measureFragments(number("weave-steps", 10_240), seedsFrom(3));
  }
  if (only.includes("overlap")) {
    const figures = await measureOverlap(rounds);
    report["overlap"] = figures;
    verdicts.push(...judgeOverlap(figures));
  }
  if (only.includes("ppo")) {
    const environments = (options["environments"] ?? "CartPole-v1,Acrobot-v1").split(",");
    const timesteps = options["timesteps"];
    const seeds = number("seeds", 5);
    const figures = await measurePpo(
      environments,
      seeds,
      timesteps ? Number(timesteps) : undefined,
    );
    report["ppo"] = figures;
    verdicts.push(...judgePpo(figures));
  }
  if (only.includes("scaling")) report["scaling"] = modelScaling();
  printVerdicts(verdicts);
  writeReport(options, "training", { ...report, verdicts });
});

function judgeAdd(figures: readonly SimdAddFigure[]): Verdict[] {
  printTable(
    "acc += part (GB/s of part, best)",
    ["MiB", "WebAssembly", "C -O3"],
    figures.map(({ megabytes, ours, c }) => [String(megabytes), ours, c ?? Number.NaN]),
  );
  const large = figures.find(({ megabytes }) => megabytes === 256);
  return large?.c ? [atLeast("add at 256 MiB, to C", large.ours / large.c, 0.8, "x")] : [];
}

/** Both sides' steps, one after the other. */
interface StepRound {
  readonly ours: readonly StepFigure[];
  readonly peer: readonly StepFigure[];
}

function judgeSteps(figures: readonly StepRound[]): Verdict[] {
  const rows = (figures[0]?.ours ?? []).map(({ name, parameters }, i) => {
    const [ours, peer] = (["ours", "peer"] as const).map((side) =>
      figures.flatMap((round) => round[side][i] ?? []),
    ) as [StepFigure[], StepFigure[]];
    const ratios = peer.map(({ medianMs }, round) => ours[round]!.medianMs / medianMs);
    const ratio = peer.length === 0 ? NaN : median(ratios);
    return { name, parameters, ratio, cells: [...timesOf(ours), ...timesOf(peer)] };
  });
  printTable(
    "Forward and backward, one thread (ms of processor time); medians of the rounds, and the best step",
    ["program", "parameters", "ONNX Runtime", "best", "PyTorch", "best", "ratio"],
    rows.map(({ name, parameters, ratio, cells }) => [name, parameters, ...cells, ratio]),
  );
  if (figures[0]?.peer.length === 0) return [];
  const limits = [0.6, 1, 1.3];
  return rows.map(({ name, ratio }, i) => ({
    bar: `${name}, to PyTorch <= ${limits[i]}x`,
    measured: `${formatNumber(ratio)}x`,
    pass: ratio <= (limits[i] ?? 0),
  }));
}

function timesOf(rounds: readonly StepFigure[]): number[] {
  if (rounds.length === 0) return [NaN, NaN];
  const best = Math.min(...rounds.map(({ bestMs }) => bestMs));
  return [median(rounds.map(({ medianMs }) => medianMs)), best];
}

/** The cost of exchanges per round, with overlap as a share of that without. */
function judgeOverlap(figures: readonly OverlapFigure[]): Verdict[] {
  printTable(
    "Rounds of 16 local steps over a slow link",
    ["way", "round ms", "waited ms", "MB an exchange"],
    figures.map((one) => [one.name, one.roundMs, one.waitedMs, one.exchangeBytes / 1e6]),
  );
  const at = (name: string) => figures.find((one) => one.name === name);
  const [blocking, overlapped] = [at("F=1, tau=0"), at("F=4, tau=12")];
  if (!blocking || !overlapped) return [];
  const share = overlapped.waitedMs / blocking.waitedMs;
  return [
    {
      bar: "waiting for fragments while computing, to whole models between rounds <= 0.25x",
      measured: `${formatNumber(share)}x`,
      pass: share <= 0.25,
    },
  ];
}

function judgeWeave(figures: readonly TrainingFigure[]): Verdict[] {
  printTable(
    "A small language model by two workers",
    ["way", "seed", "pushed MB", "pulled MB", "loss to choose by", "to judge by"],
    figures.map((one) => [
      one.name,
      String(one.seed),
      one.pushedBytes / 1e6,
      one.pulledBytes / 1e6,
      one.choosingLoss.toFixed(4),
      one.loss.toFixed(4),
    ]),
  );
  const of = (way: string) => figures.filter(({ name }) => name === way);
  const [bsp, weave] = [of("bsp, fp32"), of("weave, H=32, int8")];
  const averaged = of("bsp, fp32, averaged");
  const sum = (all: readonly TrainingFigure[], bytes: (one: TrainingFigure) => number) =>
    all.reduce((total, one) => total + bytes(one), 0);
  const pushed = (one: TrainingFigure) => one.pushedBytes;
  const both = (one: TrainingFigure) => one.pushedBytes + one.pulledBytes;
  const loss = (all: readonly TrainingFigure[]) => mean(all.map((one) => one.loss));
  const difference = loss(weave) / loss(bsp) - 1;
  const beyond = formatNumber((loss(weave) / loss(averaged) - 1) * 100);
  console.log(`weave's loss is ${beyond} % above that of bsp with the same average`);
  return [
    atLeast("bytes pushed, bsp fp32 to weave", sum(bsp, pushed) / sum(weave, pushed), 100, "x"),
    atLeast("bytes both ways, bsp fp32 to weave", sum(bsp, both) / sum(weave, both), 100, "x"),
    {
      bar: "weave's loss at most 1 % above bsp's",
      measured: `${formatNumber(difference * 100)} %`,
      pass: difference <= 0.01,
    },
  ];
}

function judgePpo(figures: readonly PpoFigure[]): Verdict[] {
  printTable(
    "PPO, by environment and seed",
    ["environment", "seed", "steps/s", "of processor time", "final return", "best"],
    figures.map((one) => [
      one.environment,
      String(one.seed),
      one.stepsPerSecond,
      one.stepsPerCpuSecond,
      one.finalReturn,
      one.bestReturn,
    ]),
  );
  const environments = [...new Set(figures.map(({ environment }) => environment))];
  return environments.flatMap((environment) => {
    const own = figures.filter((one) => one.environment === environment);
    const rate = mean(own.map(({ stepsPerSecond }) => stepsPerSecond));
    const cpuRate = mean(own.map(({ stepsPerCpuSecond }) => stepsPerCpuSecond));
    const reached = mean(own.map(({ finalReturn }) => finalReturn));
    const wanted = RETURNS[environment];
    const returned = wanted !== undefined && {
      bar: `${environment}: mean final return over ${own.length} seeds >= ${wanted}`,
      measured: formatNumber(reached),
      pass: reached >= wanted,
    };
    const bars = returned ? [returned] : [];
    if (environment !== "CartPole-v1") return bars;
    const name = "CartPole steps/s, to CleanRL's 4.6k";
    return [
      atLeast(name, rate / CLEANRL_STEPS_PER_SECOND, 8, "x"),
      atLeast(`${name}, of processor time`, cpuRate / CLEANRL_STEPS_PER_SECOND, 8, "x"),
      ...bars,
    ];
  });
}
