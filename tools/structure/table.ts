import { markdownTable } from "../docs/benchmark-tables.ts";
import type { StructureFigures } from "./figures.ts";

/** The figures before and after, side by side. */
export function structureTable(before: StructureFigures, after: StructureFigures): string {
  const rows = Object.entries(after).map(([name, now]) => [name, before[name] ?? 0, now]);
  return markdownTable(["Figure", "Before", "After"], rows);
}

/** Each count of disorder that is larger than the page says. */
export function worseFigures(page: string, now: StructureFigures): string[] {
  return Object.entries(now).flatMap(([name, value]) => {
    const recorded = recordedAfter(page, name);
    if (recorded === undefined) return [`${name}: the page lacks it`];
    if (!COUNTS_OF_DISORDER.test(name) || value <= recorded) return [];
    return [`${name}: ${value}, and the page says ${recorded}`];
  });
}

const COUNTS_OF_DISORDER =
  /^(Files of|Folders of more|Import cycles|Names|Nonstandard|The same|Pages|Lines w|Comment s|Test t|Imports b|Layers)/;

function recordedAfter(page: string, name: string): number | undefined {
  const row = page.split("\n").find((line) => line.startsWith(`| ${name} `));
  const cell = row?.split("|").at(-2)?.trim();
  return cell === undefined ? undefined : Number(cell.replaceAll(",", ""));
}
