interface PrintedTable {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

/** All that this process has printed, for its result. */
export const printed: { readonly tables: PrintedTable[]; readonly bars: Verdict[] } = {
  tables: [],
  bars: [],
};

/** Prints rows under a heading with columns as wide as they need; the first column is text. */
export function printTable(
  title: string,
  columns: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const finite = (cell: string | number) => (Number.isFinite(cell) ? cell : formatCell(cell));
  printed.tables.push({ title, columns, rows: rows.map((row) => row.map(finite)) });
  writeTable(title, columns, rows);
}

function writeTable(
  title: string,
  columns: PrintedTable["columns"],
  rows: PrintedTable["rows"],
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

export function atLeast(bar: string, measured: number, least: number, unit = ""): Verdict {
  return {
    bar: `${bar} >= ${formatNumber(least)}${unit}`,
    measured: `${formatNumber(measured)}${unit}`,
    pass: measured >= least,
  };
}

export function atMost(bar: string, measured: number, most: number): Verdict {
  return {
    bar: `${bar} <= ${formatNumber(most)}`,
    measured: formatNumber(measured),
    pass: measured <= most,
  };
}

/** Prints every bar with PASS or MISS and returns whether all were met. */
export function printVerdicts(verdicts: readonly Verdict[]): boolean {
  printed.bars.push(...verdicts);
  writeTable(
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
