import { median } from "../support/statistics.ts";
import { formatNumber, printTable, type Verdict } from "../support/table.ts";
import type { MeasuredRound } from "./rounds.ts";

/** One value of a server in a round, and the required ratio to the peer. */
interface Figure {
  readonly name: string;
  readonly unit: string;
  /** The round's results by turn: equal turns of two servers ran directly after each other. */
  readonly of: (round: MeasuredRound) => readonly number[];
  /** Absent for a value without a bar. Ratios are ours over the peer's. */
  readonly bar?: { readonly text: string; readonly pass: (ratio: number) => boolean };
}

/** Prints medians with their ratios and returns the verdicts of those with a bar. */
export function printComparison(
  ours: string | undefined,
  peer: string | undefined,
  rounds: readonly MeasuredRound[],
  concurrencies: readonly number[],
): readonly Verdict[] {
  const figures = figuresOf(concurrencies);
  const of = (server: string | undefined, figure: Figure) =>
    rounds.filter((round) => round.server === server).flatMap(figure.of);
  const ratios = figures.map((figure) => median(ratiosOf(of(ours, figure), of(peer, figure))));
  printTable(
    "Medians of the turns; the ratio is the median of the turns' ratios",
    ["figure", "unit", ours ?? "-", peer ?? "-", "ratio"],
    figures.map((figure, i) => [
      figure.name,
      figure.unit,
      median(of(ours, figure)),
      median(of(peer, figure)),
      ours !== undefined && peer !== undefined ? `${formatNumber(ratios[i]!)}x` : "-",
    ]),
  );
  if (ours === undefined || peer === undefined) return [];
  return figures.flatMap(({ bar }, i) => {
    const ratio = ratios[i]!;
    return bar
      ? [{ bar: bar.text, measured: `${formatNumber(ratio)}x`, pass: bar.pass(ratio) }]
      : [];
  });
}

function figuresOf(concurrencies: readonly number[]): readonly Figure[] {
  return [
    ...concurrencies.flatMap(decodeFigures),
    {
      name: "first token p50, one at a time",
      unit: "ms",
      of: (round) => round.firstToken.map(({ ms }) => ms),
      bar: { text: "first token <= 1.0x", pass: (ratio) => ratio <= 1 },
    },
    {
      name: "first token mean, 8 sharing a 256-token prefix",
      unit: "ms",
      of: (round) => [round.sharedPrefix.meanFirstTokenMs],
      bar: { text: "shared prefix >= 3x faster (ratio <= 0.333)", pass: (ratio) => ratio <= 1 / 3 },
    },
    {
      name: "worst gap of 3 decodes, 1,024-token prompt comes",
      unit: "ms",
      of: (round) => [round.longPrompt.worstGapMs],
      bar: { text: "worst gap >= 5x smaller (ratio <= 0.2)", pass: (ratio) => ratio <= 0.2 },
    },
    {
      name: "first token of that long prompt",
      unit: "ms",
      of: (round) => [round.longPrompt.firstTokenMs],
    },
  ];
}

function decodeFigures(concurrency: number): readonly Figure[] {
  const each =
    (pick: (turn: MeasuredRound["decode"][number][number]) => number) => (round: MeasuredRound) =>
      round.decode[concurrency]!.map(pick);
  const name = `c=${concurrency}`;
  return [
    {
      name: `decode ${name}`,
      unit: "tokens/s",
      of: each((turn) => turn.tokensPerSecond),
      bar: { text: `decode >= 1.0x at ${name}`, pass: (ratio) => ratio >= 1 },
    },
    { name: `CPU a token ${name}`, unit: "ms", of: each((turn) => turn.cpuMsPerToken) },
    { name: `whole run ${name}`, unit: "tokens/s", of: each((turn) => turn.wholeTokensPerSecond) },
    { name: `first token p50 ${name}`, unit: "ms", of: each((turn) => turn.firstTokenMs.p50) },
    { name: `gap p50 ${name}`, unit: "ms", of: each((turn) => turn.gapMs.p50) },
    { name: `gap p99 ${name}`, unit: "ms", of: each((turn) => turn.gapMs.p99) },
    { name: `gap max ${name}`, unit: "ms", of: each((turn) => turn.gapMs.max) },
  ];
}

/** Paired by turn, because those ran directly after each other. */
function ratiosOf(ours: readonly number[], peer: readonly number[]): readonly number[] {
  return ours.flatMap((value, i) => (peer[i] ? [value / peer[i]] : []));
}
