import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** The page without its blocks of code; lines keep their numbers. */
function proseOf(text: string): string {
  return text.replace(/```[\s\S]*?```/g, (block) => block.replace(/[^\n]/g, ""));
}

/** Source files that a page names in backticks and the repository lacks, by their last part. */
export function unknownFiles(path: string, text: string, files: ReadonlySet<string>): string[] {
  const prose = proseOf(text);
  return [...prose.matchAll(/`(?:[\w./-]*\/)?([\w-][\w.-]*\.(?:ts|mjs|proto))`/g)]
    .filter(([, name = ""]) => !files.has(name))
    .map(({ 0: named, index }) => {
      return `${path}:${prose.slice(0, index).split("\n").length}: there is no file ${named}`;
    });
}

/** Relative links of a Markdown file whose file or heading does not exist. */
export function brokenLinks(root: string, path: string, text: string): string[] {
  const prose = proseOf(text);
  return [...prose.matchAll(/\[[^\]]*\]\(([^)\s]+)\)/g)].flatMap((match) => {
    const target = match[1] ?? "";
    if (/^[a-z][a-z0-9+.-]*:/.test(target)) return [];
    const line = prose.slice(0, match.index).split("\n").length;
    const problem = linkProblem(root, path, target, text);
    return problem ? [`${path}:${line}: ${problem}`] : [];
  });
}

function linkProblem(root: string, path: string, target: string, text: string): string | undefined {
  const [file = "", anchor] = target.split("#");
  const absolute = file === "" ? join(root, path) : join(root, dirname(path), file);
  if (file !== "" && !existsSync(absolute)) return `the link ${target} leads nowhere`;
  if (!anchor || !/\.md$/.test(absolute)) return undefined;
  const headings = anchors(file === "" ? text : readFileSync(absolute, "utf8"));
  return headings.includes(anchor) ? undefined : `the link ${target} names no heading`;
}

/** Headings as GitHub writes their anchors. */
function anchors(text: string): string[] {
  return [...text.matchAll(/^#{1,6}\s+(.+)$/gm)].map((match) =>
    (match[1] ?? "")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .trim()
      .replaceAll(" ", "-"),
  );
}
