/** Prints rows under a heading with columns as wide as they need; the first column is text. */
export function printTable(
  title: string,
  columns: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const cells = [columns, ...rows].map((row) => row.map(formatCell));
  const widths = columns.map((_, index) => Math.max(...cells.map((row) => row[index]!.length)));
  const lines = cells.map((row) =>
    row
      .map((cell, index) => (index === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[index]!)))
      .join("  ")
      .trimEnd(),
  );
  const rule = widths.map((width) => "-".repeat(width)).join("  ");
  console.log(["", title, "", lines[0], rule, ...lines.slice(1)].join("\n"));
}

/** One bar of a benchmark, with the measured value. */
export interface Verdict {
  readonly bar: string;
  readonly measured: string;
  readonly pass: boolean;
}

/** The verdict on a minimum ratio. */
export function atLeastRatio(bar: string, ratio: number, wanted: number): Verdict {
  return {
    bar: `${bar} >= ${wanted}x`,
    measured: `${formatNumber(ratio)}x`,
    pass: ratio >= wanted,
  };
}

/** Prints every bar with PASS or MISS and returns whether all were met. */
export function printVerdicts(verdicts: readonly Verdict[]): boolean {
  printTable(
    "Bars",
    ["bar", "measured", "verdict"],
    verdicts.map(({ bar, measured, pass }) => [bar, measured, pass ? "PASS" : "MISS"]),
  );
  return verdicts.every(({ pass }) => pass);
}

/** Three significant digits below 100 and none after the point from there on. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "n/a";
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return Math.round(value).toString();
  return value.toPrecision(3);
}

function formatCell(cell: string | number): string {
  return typeof cell === "number" ? formatNumber(cell) : cell;
}
