import { z } from "zod";
import { type BenchResult, benchResultSchema } from "../../bench/support/result.ts";
import { formatNumber } from "../../bench/support/table.ts";
import { escapeMarkdown } from "./generated-region.ts";

/** Reads bench/results/NAME.json; throws with the file and the place where it is malformed. */
export function parseResult(path: string, text: string): BenchResult {
  const result = benchResultSchema.safeParse(JSON.parse(text));
  if (!result.success) throw new Error(`${path}: ${z.prettifyError(result.error)}`);
  return result.data;
}

/** When and how a result was taken, its tables and its bars. */
export function resultTables(result: BenchResult): string {
  const tables = result.tables.map(
    ({ title, columns, rows }) => `${escapeMarkdown(title)}:\n\n${markdownTable(columns, rows)}`,
  );
  const bars = result.bars.map(({ bar, measured, pass }) => [bar, measured, verdict(pass)]);
  if (bars.length > 0) tables.push(markdownTable(["bar", "measured", "verdict"], bars));
  return [origin(result), ...tables].join("\n\n");
}

/** How many bars are met, and each that is not. */
export function barSummary(results: ReadonlyMap<string, BenchResult>): string {
  const bars = [...results].flatMap(([name, result]) =>
    result.bars.map((bar) => ({ ...bar, name })),
  );
  const missed = bars.filter(({ pass }) => !pass);
  const lines = missed.map(
    ({ name, bar, measured }) => `- ${name}: ${escapeMarkdown(`${bar}, measured ${measured}`)}`,
  );
  const count = `${bars.length - missed.length} of ${bars.length} bars are met.`;
  return missed.length === 0 ? count : `${count} Missed:\n\n${lines.join("\n")}`;
}

function origin(result: BenchResult): string {
  const { takenAt, transcribed, machine, load, commit, command } = result;
  const { cores, cpu, memoryGiB, node } = machine;
  const what = transcribed ? "Transcribed from the page of" : "Taken";
  const at = commit === undefined ? "" : ` at ${commit}`;
  return (
    `${what} ${takenAt.slice(0, 10)}${at}, ${load}; ${cores} cores (${cpu.trim()}), ` +
    `${memoryGiB} GiB, Node ${node}:\n\`${command}\``
  );
}

function verdict(pass: boolean): string {
  return pass ? "met" : "MISSED";
}

type Cell = string | number;

/** As Biome formats Markdown. The first column is text, the others are to the right. */
export function markdownTable(
  columns: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const cells = [columns, ...rows].map((row) => row.map(cellText));
  const widths = columns.map((_, at) => Math.max(3, ...cells.map((row) => row[at]?.length ?? 0)));
  const line = (texts: readonly string[]) => `| ${texts.join(" | ")} |`;
  const padded = cells.map((row) =>
    line(row.map((text, at) => (at === 0 ? text.padEnd(widths[0]!) : text.padStart(widths[at]!)))),
  );
  const rule = widths.map((width, at) =>
    at === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );
  return [padded[0], line(rule), ...padded.slice(1)].join("\n");
}

function cellText(cell: Cell): string {
  if (typeof cell === "string") return escapeMarkdown(cell);
  const text = formatNumber(cell);
  return text.includes(".") ? text : text.replace(/\B(?=(\d{3})+$)/g, ",");
}
