/**
 * Prints figures of a tree's structure, this one's by default:
 *
 *     npm run structure -- [ROOT]
 */
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { wideLines, wordCount } from "./tidy/document-rules.ts";
import { cycles, resolveImport, roomCycles } from "./tidy/graph-rules.ts";
import {
  longSentences,
  longTitles,
  privateMessages,
  privateNames,
  privatePhrases,
  sharedNames,
} from "./tidy/language-rules.ts";
import { isTest, readSources, repositoryFiles } from "./tidy/source-file.ts";

const root = resolve(process.argv[2] ?? join(import.meta.dirname, ".."));
const paths = repositoryFiles(root);
const files = readSources(root, paths).filter(({ path }) => !path.includes("/generated/"));
const sources = files.filter(
  ({ path }) => /^(apps|libs)\/[^/]+\/src\//.test(path) && !isTest(path),
);

const folders = countBy(sources.map(({ path }) => dirname(path)));
const testFolders = countBy(
  files.filter(({ path }) => path.endsWith(".test.ts")).map(({ path }) => dirname(path)),
);
const commentWords = files.flatMap(({ comments }) =>
  comments.flatMap(({ text }) => text.split(/\s+/).filter(Boolean)),
).length;
const pages = new Map(
  paths
    .filter((path) => /^(README|ARCHITECTURE|docs\/.*)\.md$/.test(path))
    .map((path) => [path, readFileSync(join(root, path), "utf8")]),
);
const phrases = files.flatMap(privatePhrases).length;
const master = arrowsOf("apps/master/src/");

console.table({
  "source files": sources.length,
  "lines of source": sum(sources.map(({ lineCount }) => lineCount)),
  "files of the largest folder": Math.max(...folders.values()),
  "folders of more than 20 files": [...folders.values()].filter((count) => count > 20).length,
  "folders of more than 20 tests": [...testFolders.values()].filter((count) => count > 20).length,
  "rooms of apps/master": master.rooms,
  "arrows between them": master.arrows,
  "import cycles, types too": cycles(sources).length,
  "import cycles of rooms in apps": roomCycles(sources).length,
  "names exported twice": sharedNames(files).length,
  "private phrases in comments and titles": phrases,
  "private phrases per 1,000 comment words": Number(((1_000 * phrases) / commentWords).toFixed(2)),
  "private phrases in messages": files.flatMap(privateMessages).length,
  "private words in names": files.flatMap(privateNames).length,
  "comment sentences of more than 25 words": files.flatMap(longSentences).length,
  "titles of more than 80 characters": files.flatMap(longTitles).length,
  "words of the documents": sum([...pages.values()].map(wordCount)),
  "pages of more than 1,500 words": [...pages.values()].filter((text) => wordCount(text) > 1_500)
    .length,
  "lines wider than 140 columns": [...pages].flatMap(([path, text]) => wideLines(path, text))
    .length,
});

function countBy(names: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

/** The first folders below a path, and the pairs of them of which one imports from the other. */
function arrowsOf(below: string): { readonly rooms: number; readonly arrows: number } {
  const own = sources.filter(({ path }) => path.startsWith(below));
  const known = new Set(own.map(({ path }) => path));
  const roomOf = (path: string) => path.slice(below.length).split("/").slice(0, -1)[0] ?? ".";
  const arrows = own.flatMap(({ path, imports }) =>
    imports.flatMap(({ specifier }) => {
      const target = resolveImport(path, specifier, known);
      if (target === undefined || roomOf(path) === roomOf(target)) return [];
      return [`${roomOf(path)} -> ${roomOf(target)}`];
    }),
  );
  return { rooms: new Set(own.map(({ path }) => roomOf(path))).size, arrows: new Set(arrows).size };
}
