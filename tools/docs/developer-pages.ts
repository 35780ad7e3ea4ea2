import { parse } from "yaml";
import { z } from "zod";
import { replaceGenerated } from "./generated-region.ts";

type ReadPage = (path: string) => string;

const LONGEST_MEANING = 20;

const meaning = z
  .string()
  .regex(/^[A-Z].*\.$/, "a meaning begins with a capital and ends with a full stop")
  .refine((text) => text.split(/\s+/).length <= LONGEST_MEANING, {
    message: `a meaning has at most ${LONGEST_MEANING} words`,
  });
const glossarySchema = z.record(
  z.string(),
  z.record(z.string(), z.strictObject({ is: meaning, file: z.string() })),
);
const packageSchema = z.object({
  description: z.string().min(1),
  dependencies: z.record(z.string(), z.string()).default({}),
});

/** The generated parts of pages for developers: packages, decisions and the glossary. */
export function developerPages(
  paths: readonly string[],
  read: ReadPage,
): ReadonlyMap<string, string> {
  const parts = {
    "ARCHITECTURE.md": ["packages", packageTables(paths, read)],
    "docs/adr/README.md": ["decisions", decisionList(paths, read)],
    "docs/internals/glossary.md": ["terms", glossary(paths, read)],
  } as const;
  return new Map(
    Object.entries(parts).map(([page, [name, text]]) => {
      return [page, replaceGenerated(read(page), name, text)] as const;
    }),
  );
}

/** The packages with their descriptions, and what libs depend on. */
function packageTables(paths: readonly string[], read: ReadPage): string {
  const packagesOf = (folder: string) =>
    paths.flatMap((path) => {
      const name = new RegExp(`^${folder}/([^/]+)/package\\.json$`).exec(path)?.[1];
      if (name === undefined) return [];
      const { success, data } = packageSchema.safeParse(JSON.parse(read(path)));
      if (!success) throw new Error(`${path}: a package has a \`description\``);
      return [{ name, ...data }];
    });
  const libs = packagesOf("libs").map(({ name, description, dependencies }) => {
    const own = Object.keys(dependencies).flatMap(
      (each) => /^@heddle\/(.*)$/.exec(each)?.[1] ?? [],
    );
    return [`\`${name}\``, own.length === 0 ? "nothing" : own.join(", "), description];
  });
  const apps = packagesOf("apps").map(({ name, description }) => [`\`${name}\``, description]);
  return [
    alignedTable(["Lib", "Imports", "Is"], libs),
    alignedTable(["App", "Process"], apps),
  ].join("\n\n");
}

function decisionList(paths: readonly string[], read: ReadPage): string {
  return paths
    .flatMap((path) => /^docs\/adr\/(\d{4}-.*\.md)$/.exec(path)?.[1] ?? [])
    .map((name) => {
      const title = /^# (.*)$/m.exec(read(`docs/adr/${name}`))?.[1];
      if (title === undefined) throw new Error(`docs/adr/${name} has no title`);
      return `- [${title}](${name})`;
    })
    .join("\n");
}

function glossary(paths: readonly string[], read: ReadPage): string {
  const source = "docs/glossary.yaml";
  const { success, data, error } = glossarySchema.safeParse(parse(read(source)));
  if (!success) throw new Error(`${source}: ${z.prettifyError(error)}`);
  const known = new Set(
    paths.flatMap((path) => path.split("/").map((_, at, all) => all.slice(0, at + 1).join("/"))),
  );
  const sections = Object.entries(data).map(([subject, terms]) => {
    const lines = Object.entries(terms).map(([term, { is, file }]) => {
      if (!known.has(file)) throw new Error(`${source}: ${term}: there is no file ${file}`);
      return `- **${term}**: ${is} [${file.split("/").at(-1)}](../../${file})`;
    });
    return `## ${subject}\n\n${lines.join("\n")}`;
  });
  return sections.join("\n\n");
}

/** Columns are as wide as their widest cell, as the formatter writes them. */
function alignedTable(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = heads.map((head, at) => {
    return Math.max(head.length, ...rows.map((row) => row[at]?.length ?? 0));
  });
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(" | ")} |`;
  const rule = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  return [line(heads), rule, ...rows.map(line)].join("\n");
}
