import { dirname } from "node:path";
import { wideLines, wordCount } from "../tidy/document-rules.ts";
import { cycles, folderCycles, resolveImport } from "../tidy/graph-rules.ts";
import {
  longSentences,
  longTitles,
  privateMessages,
  privateNames,
  privatePhrases,
  sharedNames,
} from "../tidy/language-rules.ts";
import { isTest, type SourceFile } from "../tidy/source-file.ts";

export type StructureFigures = Readonly<Record<string, number>>;

/** The figures of a tree, by their names. */
export function measure(
  all: readonly SourceFile[],
  pages: ReadonlyMap<string, string>,
): StructureFigures {
  const files = all.filter(({ path }) => !path.includes("/generated/"));
  const sources = files.filter(
    ({ path }) => /^(apps|libs)\/[^/]+\/src\//.test(path) && !isTest(path),
  );
  return {
    ...foldersOf(files, sources),
    ...topFoldersOf("apps/master", sources),
    ...topFoldersOf("apps/worker", sources),
    ...topFoldersOf("libs/scheduler", sources),
    "Import cycles, type imports included": cycles(sources).length,
    "Import cycles between top folders of an app": folderCycles(sources.filter(isOfApp), new Set())
      .length,
    ...languageOf(files),
    ...documentsOf(pages),
  };
}

function isOfApp({ path }: SourceFile): boolean {
  return path.startsWith("apps/");
}

function foldersOf(files: readonly SourceFile[], sources: readonly SourceFile[]): StructureFigures {
  const folders = countBy(sources.map(({ path }) => dirname(path)));
  const tests = files.filter(({ path }) => path.endsWith(".test.ts"));
  const testFolders = countBy(tests.map(({ path }) => dirname(path)));
  return {
    "Source files in apps and libs": sources.length,
    "Lines of source (in thousands)": round(sum(sources.map(({ lineCount }) => lineCount)) / 1_000),
    "Files of the largest folder": Math.max(...folders.values()),
    "Folders of more than 20 source files": above20(folders),
    "Folders of more than 20 tests": above20(testFolders),
  };
}

function languageOf(files: readonly SourceFile[]): StructureFigures {
  const phrases = files.flatMap(privatePhrases).length;
  const words = files.flatMap(({ comments }) =>
    comments.flatMap(({ text }) => text.split(/\s+/).filter(Boolean)),
  );
  return {
    "Names that two files export": sharedNames(files).length,
    "Nonstandard phrases in comments and titles": phrases,
    "The same for 1,000 words of comments": round((1_000 * phrases) / words.length),
    "Nonstandard phrases in messages": files.flatMap(privateMessages).length,
    "Names with nonstandard words, by file": files.flatMap(privateNames).length,
    "Comment sentences of more than 25 words": files.flatMap(longSentences).length,
    "Test titles of more than 80 characters": files.flatMap(longTitles).length,
  };
}

function documentsOf(all: ReadonlyMap<string, string>): StructureFigures {
  const pages = [...all].filter(([path]) => /^(README|ARCHITECTURE|docs\/.*)\.md$/.test(path));
  return {
    "Hand-written words of README, ARCHITECTURE, docs": sum(
      pages.map(([, text]) => wordCount(text)),
    ),
    "Pages of more than 1,500 words": pages.filter(([, text]) => wordCount(text) > 1_500).length,
    "Lines wider than 140 columns": pages.flatMap(([path, text]) => wideLines(path, text)).length,
  };
}

/**
 * The first folders below `src`, the pairs of them that import, and the longest chain of these. What
 * composes an app does not count, as in `folderCycles`: modules, and the files beside the folders.
 */
function topFoldersOf(project: string, sources: readonly SourceFile[]): StructureFigures {
  const below = `${project}/src/`;
  const isApp = project.startsWith("apps/");
  const own = sources.filter(({ path }) => {
    const isBeside = !path.slice(below.length).includes("/");
    return path.startsWith(below) && !path.endsWith(".module.ts") && !(isApp && isBeside);
  });
  const known = new Set(own.map(({ path }) => path));
  const topFolderOf = (path: string) => path.slice(below.length).split("/").slice(0, -1)[0] ?? ".";
  const imported = new Map(own.map(({ path }) => [topFolderOf(path), new Set<string>()]));
  for (const { path, imports } of own) {
    for (const { specifier } of imports) {
      const target = resolveImport(path, specifier, known);
      if (target === undefined || topFolderOf(path) === topFolderOf(target)) continue;
      imported.get(topFolderOf(path))!.add(topFolderOf(target));
    }
  }
  return {
    [`Top folders of ${project}`]: imported.size,
    [`Imports between top folders of ${project}`]: sum(
      [...imported.values()].map(({ size }) => size),
    ),
    [`Layers of ${project}`]: Math.max(
      0,
      ...[...imported.keys()].map((folder) => layer(folder, imported)),
    ),
  };
}

/** One more than the highest layer that the folder imports; a cycle counts once. */
function layer(
  folder: string,
  imported: ReadonlyMap<string, ReadonlySet<string>>,
  above: readonly string[] = [],
): number {
  const lower = [...(imported.get(folder) ?? [])].filter((each) => !above.includes(each));
  return 1 + Math.max(0, ...lower.map((each) => layer(each, imported, [...above, folder])));
}

function countBy(names: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function above20(counts: ReadonlyMap<string, number>): number {
  return [...counts.values()].filter((count) => count > 20).length;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

function round(number: number): number {
  return Number(number.toFixed(2));
}
