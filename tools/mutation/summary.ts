import { MIN_SCORE, type MutationScore } from "./score.ts";

/** A package's score over the files that have a result. */
export interface PackageSummary {
  readonly name: string;
  readonly score: MutationScore;
  readonly files: number;
  /** Files that have a result. */
  readonly tried: number;
}

const HEADINGS = [
  "package",
  "score",
  "detected",
  "by time",
  "survived",
  "not covered",
  "explained",
];

/** One line per package, for a terminal. */
export function summaryTable(packages: readonly PackageSummary[]): string {
  const rows = [[...HEADINGS, "files"], ...packages.map(cellsOf)];
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  return rows
    .map((row) => row.map((cell, column) => cell.padEnd(widths?.[column] ?? 0)).join("  "))
    .map((line) => line.trimEnd())
    .join("\n");
}

function cellsOf({ name, score, files, tried }: PackageSummary): string[] {
  const { percent, detected, timedOut, missed, explained } = score;
  const survived = missed.filter(({ covered }) => covered).length;
  const counts = [detected, timedOut, survived, missed.length - survived, explained];
  const shown = tried === 0 ? "-" : `${percent.toFixed(1)} %`;
  return [name, shown, ...counts.map(String), `${tried} of ${files}`];
}

/** Whether the packages pass: one is judged when all its files have a result. */
export function passes(packages: readonly PackageSummary[]): boolean {
  return packages
    .filter(({ files, tried }) => tried === files)
    .every(({ score: { percent, stale } }) => percent >= MIN_SCORE && stale.length === 0);
}
