import { readFileSync, writeFileSync } from "node:fs";

const PAGE = "docs/guide/moderations.md";

/** A text of seed.txt and its categories. */
export interface SeedText {
  readonly labels: readonly string[];
  readonly text: string;
}

export function readSeed(): SeedText[] {
  const lines = readFileSync(new URL("seed.txt", import.meta.url), "utf8")
    .trim()
    .split("\n");
  return lines.map((line) => {
    const [labels = "", text = ""] = line.split("|");
    return { labels: labels.split(","), text };
  });
}

/** The chance that a positive has a higher score than a negative. */
export function aucOf(scored: readonly { readonly is: boolean; readonly score: number }[]): number {
  const positives = scored.filter(({ is }) => is);
  const negatives = scored.filter(({ is }) => !is);
  let wins = 0;
  for (const { score } of positives) {
    for (const other of negatives) {
      wins += score > other.score ? 1 : score === other.score ? 0.5 : 0;
    }
  }
  return wins / (positives.length * negatives.length);
}

/** Writes a table into its generated part of the page. */
export function writeTable(part: string, header: string, rows: readonly string[]): void {
  const columns = header.split("|").length - 2;
  const table = [header, `|${" --- |".repeat(columns)}`, ...rows].join("\n");
  const page = readFileSync(PAGE, "utf8");
  const region = new RegExp(`(<!-- generated: ${part} -->\n\n)[\\s\\S]*?(\n\n<!-- end -->)`);
  writeFileSync(
    PAGE,
    page.replace(region, (_all, begin, end) => `${begin}${table}${end}`),
  );
  process.stdout.write(`${table}\n`);
}
