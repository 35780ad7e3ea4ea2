import { z } from "zod";
import type { BenchResult } from "../../bench/support/result.ts";
import { isTest, type SourceFile } from "../tidy/source-file.ts";
import { barSummary, markdownTable, parseResult, resultTables } from "./benchmark-tables.ts";
import { developerPages } from "./developer-pages.ts";
import { replaceGenerated } from "./generated-region.ts";
import { type HoldsTag, holdsTags } from "./holds-tags.ts";
import { parsePromises, type VerificationArea } from "./promises.ts";
import { referencePages } from "./reference-pages.ts";
import { verificationFaults, verificationTable } from "./verification-page.ts";

const percent = z.number().min(0).max(100);
const mutationScore = z.strictObject({
  package: z.string(),
  percent,
  mutants: z.int().positive(),
  seed: z.int(),
  date: z.iso.date(),
});

type ReadPage = (path: string) => string;

/** Each page with generated parts, as it should be; throws where its sources do not fit. */
export function generatedPages(
  paths: readonly string[],
  sources: readonly SourceFile[],
  read: ReadPage,
): ReadonlyMap<string, string> {
  const areas = parsePromises(read("docs/promises.yaml"));
  const results = benchResults(paths, read);
  const faults = [...verificationFaults(areas, testTags(sources)), ...unmeasured(areas, results)];
  if (faults.length > 0) throw new Error(faults.join("\n"));
  const promises = verificationTable(areas, testTags(sources));
  return new Map([
    ["docs/verification.md", verificationPage(promises, read)],
    ["docs/benchmarks.md", benchmarksPage(results, read)],
    ...developerPages(paths, read),
    ...Object.entries(referencePages()).map(([name, text]) => {
      return [`docs/reference/${name}`, text] as const;
    }),
  ]);
}

function verificationPage(promises: string, read: ReadPage): string {
  const scores = mutationScores(read("tools/mutation/scores.json"));
  const page = replaceGenerated(read("docs/verification.md"), "promises", promises);
  return replaceGenerated(page, "mutations", scores);
}

/** The scores of the latest samples, with their 95 % intervals. */
function mutationScores(text: string): string {
  const scores = z.array(mutationScore).parse(JSON.parse(text));
  const rows = scores.map(({ package: name, percent, mutants, seed, date }) => {
    const [least, most] = wilsonInterval(percent / 100, mutants);
    return [
      name,
      percent,
      Math.round(100 * least),
      Math.round(100 * most),
      mutants,
      String(seed),
      date,
    ];
  });
  const headings = ["Package", "Score in %", "At least", "At most", "Mutants", "Seed", "Date"];
  return markdownTable(headings, rows);
}

/** Where the share of the whole lies, with 95 % certainty, if a sample has this share. */
function wilsonInterval(share: number, size: number): readonly [number, number] {
  const z2 = 1.96 ** 2;
  const middle = share + z2 / (2 * size);
  const half = Math.sqrt(z2 * ((share * (1 - share)) / size + z2 / (4 * size ** 2)));
  return [(middle - half) / (1 + z2 / size), (middle + half) / (1 + z2 / size)];
}

function testTags(sources: readonly SourceFile[]): HoldsTag[] {
  return sources.filter(({ path }) => isTest(path)).flatMap(holdsTags);
}

function benchResults(paths: readonly string[], read: ReadPage): Map<string, BenchResult> {
  return new Map(
    paths.flatMap((path) => {
      const name = /^bench\/results\/(.*)\.json$/.exec(path)?.[1];
      return name === undefined ? [] : [[name, parseResult(path, read(path))] as const];
    }),
  );
}

/** Promises whose benchmark has no result. */
function unmeasured(
  areas: readonly VerificationArea[],
  results: ReadonlyMap<string, BenchResult>,
): string[] {
  const benchmarks = new Set([...results.values()].map(({ benchmark }) => benchmark));
  return areas.flatMap(({ promises }) =>
    Object.entries(promises)
      .filter(([, { check, why }]) => check === "benchmark" && !benchmarks.has(why ?? ""))
      .map(([id, { why }]) => `${id}: no result in bench/results is of the benchmark ${why}`),
  );
}

function benchmarksPage(results: ReadonlyMap<string, BenchResult>, read: ReadPage): string {
  const text = read("docs/benchmarks.md");
  for (const [, name = ""] of text.matchAll(/<!-- generated: (\S+) -->/g)) {
    if (name === "bars" || results.has(name)) continue;
    throw new Error(`docs/benchmarks.md shows ${name}, and bench/results/${name}.json is missing`);
  }
  const page = replaceGenerated(text, "bars", barSummary(results));
  return [...results].reduce(
    (shown, [name, result]) => replaceGenerated(shown, name, resultTables(result)),
    page,
  );
}
