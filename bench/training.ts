import { withCleanup } from "./support/child-process.ts";
import { readOptions, writeReport } from "./support/command-line.ts";
import { mean } from "./support/statistics.ts";
import { formatNumber, printTable, printVerdicts, type Verdict } from "./support/table.ts";
import { type CartPoleFigure, measureCartPole } from "./training/cart-pole.ts";
import { measureSteps } from "./training/compute.ts";
import { type DataPlaneFigure, measureDataPlane } from "./training/data-plane.ts";
import { measureSimdAdd, type SimdAddFigure } from "./training/simd-add.ts";
import { measureWeave, type TrainingFigure } from "./training/weave-bytes.ts";

// The data plane of training beside grpc-js and C, and what one core computes.

const usage = `npm run bench:training -- [--json FILE] [--only data,add,steps,weave,cartpole]
  [--rounds N] [--weave-steps N] [--seeds N] [--timesteps N]`;
const options = readOptions(usage, [
  ...["json", "only", "rounds", "weave-steps", "seeds", "timesteps"],
]);
const only = (options["only"] ?? "data,add,steps,weave,cartpole").split(",");
const number = (name: string, standard: number) => Number(options[name] ?? standard);
const rounds = number("rounds", 9);
/** CleanRL's published rate on CartPole, steps/s. */
const CLEANRL_STEPS_PER_SECOND = 4600;

await withCleanup(async () => {
  const verdicts: Verdict[] = [];
  const report: Record<string, object> = {};
  if (only.includes("data")) {
    const figures = await measureDataPlane(rounds);
    report["dataPlane"] = figures;
    verdicts.push(...judgeDataPlane(figures));
  }
  if (only.includes("add")) {
    const figures = measureSimdAdd(rounds);
    report["simdAdd"] = figures;
    verdicts.push(...judgeAdd(figures));
  }
  if (only.includes("steps")) {
    const figures = await measureSteps(rounds * 4);
    report["steps"] = figures;
    printTable(
      "Forward and backward on ONNX Runtime, one thread (ms)",
      ["program", "parameters", "median", "best"],
      figures.map((one) => [one.name, one.parameters, one.medianMs, one.bestMs]),
    );
  }
  if (only.includes("weave")) {
    const figures = await measureWeave(number("weave-steps", 1280));
    report["weave"] = figures;
    verdicts.push(...judgeWeave(figures));
  }
  if (only.includes("cartpole")) {
    const figures = await measureCartPole(number("seeds", 5), number("timesteps", 500_000));
    report["cartPole"] = figures;
    verdicts.push(...judgeCartPole(figures));
  }
  printVerdicts(verdicts);
  writeReport(options["json"], { ...report, verdicts });
});

function atLeast(bar: string, ratio: number, wanted: number): Verdict {
  return {
    bar: `${bar} >= ${wanted}x`,
    measured: `${formatNumber(ratio)}x`,
    pass: ratio >= wanted,
  };
}

function judgeDataPlane(figures: readonly DataPlaneFigure[]): Verdict[] {
  printTable(
    "Parameters between two processes (GB/s, medians; ours with the add)",
    ["path", "MiB", "push", "pull"],
    figures.map(({ name, megabytes, push, pull }) => [name, megabytes, push, pull]),
  );
  const at = (name: string) => figures.find((one) => one.name === name && one.megabytes === 64);
  const [peer, unix, tcp] = [at("grpc-js"), at("ours, unix"), at("ours, tcp")];
  if (!peer || !unix || !tcp) return [];
  const push = Math.max(unix.push, tcp.push) / peer.push;
  return [
    atLeast("push + add at 64 MiB, to grpc-js", push, 3),
    atLeast("pull at 64 MiB, to grpc-js", Math.max(unix.pull, tcp.pull) / peer.pull, 1),
  ];
}

function judgeAdd(figures: readonly SimdAddFigure[]): Verdict[] {
  printTable(
    "acc += part (GB/s of part, best)",
    ["MiB", "WebAssembly", "C -O3"],
    figures.map(({ megabytes, ours, c }) => [String(megabytes), ours, c ?? Number.NaN]),
  );
  const large = figures.find(({ megabytes }) => megabytes === 256);
  return large?.c ? [atLeast("add at 256 MiB, to C", large.ours / large.c, 0.8)] : [];
}

function judgeWeave(figures: readonly TrainingFigure[]): Verdict[] {
  printTable(
    "A small language model by two workers",
    ["way", "pushed MB", "pulled MB", "held-out loss"],
    figures.map((one) => [one.name, one.pushedBytes / 1e6, one.pulledBytes / 1e6, one.loss]),
  );
  const [bsp, weave] = figures;
  if (!bsp || !weave) return [];
  const both = (one: TrainingFigure) => one.pushedBytes + one.pulledBytes;
  const difference = weave.loss / bsp.loss - 1;
  return [
    atLeast("bytes pushed, bsp fp32 to weave", bsp.pushedBytes / weave.pushedBytes, 100),
    atLeast("bytes both ways, bsp fp32 to weave", both(bsp) / both(weave), 100),
    {
      bar: "weave's loss at most 1 % above bsp's",
      measured: `${formatNumber(difference * 100)} %`,
      pass: difference <= 0.01,
    },
  ];
}

function judgeCartPole(figures: readonly CartPoleFigure[]): Verdict[] {
  printTable(
    "PPO on CartPole, by seed",
    ["seed", "steps/s", "final return", "best", "steps to 490"],
    figures.map((one) => [
      String(one.seed),
      one.stepsPerSecond,
      one.finalReturn,
      one.bestReturn,
      one.stepsTo490 ?? Number.NaN,
    ]),
  );
  const rate = mean(figures.map(({ stepsPerSecond }) => stepsPerSecond));
  const reached = mean(figures.map(({ finalReturn }) => finalReturn));
  return [
    atLeast("CartPole steps/s, to CleanRL's 4.6k", rate / CLEANRL_STEPS_PER_SECOND, 8),
    {
      bar: "mean final return over the seeds >= 490",
      measured: formatNumber(reached),
      pass: reached >= 490,
    },
  ];
}
