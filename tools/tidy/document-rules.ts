/** Rules about Markdown pages, except their generated parts. */

const MAX_COLUMNS = 140;
const MAX_GUIDE_WORDS = 1_500;
/** The most words of README, ARCHITECTURE and docs together. */
export const MAX_DOCUMENT_WORDS = 20_000;

const GENERATED = /<!-- generated: .*? -->[\s\S]*?<!-- end -->/g;

/** The page with its generated parts blanked; lines keep their numbers. */
function written(text: string): string {
  return text.replace(GENERATED, (part) => part.replace(/[^\n]/g, ""));
}

/** Words that someone wrote: runs of characters with a letter or digit. */
export function wordCount(text: string): number {
  return written(text)
    .split(/\s+/)
    .filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}

export function wideLines(path: string, text: string): string[] {
  return written(text)
    .split("\n")
    .flatMap((line, at) =>
      line.length <= MAX_COLUMNS
        ? []
        : [`${path}:${at + 1}: ${line.length} columns; a line has at most ${MAX_COLUMNS}`],
    );
}

export function longGuidePage(path: string, text: string): string[] {
  const words = wordCount(text);
  if (!path.startsWith("docs/guide/") || words <= MAX_GUIDE_WORDS) return [];
  return [`${path}:1: ${words} words; a page of the guide has at most ${MAX_GUIDE_WORDS}`];
}

/** The first sentence says whom the page is for. */
export function readerless(path: string, text: string): string[] {
  if (!/^docs\/(guide|internals|reference|runbooks)\//.test(path)) return [];
  if (/^# .+\n\nFor [a-z]/.test(text)) return [];
  return [`${path}:3: a page begins with its title and whom it is for, as "For users who ..."`];
}

/** The words of all pages of the repository's documents, without those of packages. */
export function tooManyWords(pages: ReadonlyMap<string, string>): string[] {
  const words = [...pages]
    .filter(([path]) => /^(README|ARCHITECTURE|docs\/.*)\.md$/.test(path))
    .reduce((sum, [, text]) => sum + wordCount(text), 0);
  if (words <= MAX_DOCUMENT_WORDS) return [];
  return [`docs: ${words} words; README, ARCHITECTURE and docs have at most ${MAX_DOCUMENT_WORDS}`];
}
