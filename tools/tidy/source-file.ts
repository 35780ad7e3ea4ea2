import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseSync } from "oxc-parser";

/** A node of the ESTree that oxc gives; the rules read only what they name. */
export interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

export interface ImportUse {
  /** As written: `./x.ts`, `@heddle/base/errors`, `node:fs`. */
  readonly specifier: string;
  /** Imported names; `*` where all of the module may be used. */
  readonly names: readonly string[];
  /** True where the compiled file does not load the module. */
  readonly typeOnly: boolean;
  /** True where the file is only named to be run in a thread or process of its own. */
  readonly isStart?: boolean;
  readonly line: number;
}

export interface ExportedName {
  readonly name: string;
  readonly typeOnly: boolean;
  readonly line: number;
}

/** One TypeScript or JavaScript file of the repository, parsed. */
export interface SourceFile {
  /** From the repository's root, with forward slashes. */
  readonly path: string;
  readonly text: string;
  readonly lineCount: number;
  readonly body: readonly SyntaxNode[];
  readonly imports: readonly ImportUse[];
  readonly exports: readonly ExportedName[];
  /** In the order of the text. */
  readonly comments: readonly Comment[];
}

export interface Comment {
  /** Without its slashes and outer stars. */
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** True for `//`. */
  readonly isLine: boolean;
}

export function parseSource(path: string, text: string): SourceFile {
  const result = parseSync(path, text);
  if (result.errors.length > 0) throw new Error(`${path}: ${result.errors[0]?.message}`);
  const line = (offset: number) => lineAt(text, offset);
  const body = result.program.body as unknown as readonly SyntaxNode[];
  return {
    path,
    text,
    lineCount: text.split("\n").length - (text.endsWith("\n") ? 1 : 0),
    body,
    imports: [
      ...staticImports(result.module, line),
      ...importedTypes(body, line),
      ...loadsAtRunTime(result, text, line),
    ],
    exports: exportedNames(result.module, body, line),
    comments: result.comments.map(({ type, value, start, end }) => ({
      text: value,
      start,
      end,
      isLine: type === "Line",
    })),
  };
}

/** A file of Protocol Buffers, of which the rules read the comments alone. */
export function parseProto(path: string, text: string): SourceFile {
  const comments = [...text.matchAll(/\/\/(.*)/g)].map(({ 0: all, 1: comment = "", index }) => ({
    text: comment,
    start: index,
    end: index + all.length,
    isLine: true,
  }));
  return {
    path,
    text,
    lineCount: text.split("\n").length,
    body: [],
    imports: [],
    exports: [],
    comments,
  };
}

type ParseResult = ReturnType<typeof parseSync>;
type ModuleRecord = ParseResult["module"];
type LineOf = (offset: number) => number;

function staticImports(module: ModuleRecord, line: LineOf): ImportUse[] {
  const imports = module.staticImports.map((entry) => ({
    specifier: entry.moduleRequest.value,
    names: entry.entries.map((e) =>
      e.importName.kind === "Name"
        ? (e.importName.name ?? "*")
        : e.importName.kind === "Default"
          ? "default"
          : "*",
    ),
    typeOnly: entry.entries.length > 0 && entry.entries.every((e) => e.isType),
    line: line(entry.start),
  }));
  const reExports = module.staticExports.flatMap((statement) =>
    statement.entries
      .filter((e) => e.moduleRequest)
      .map((e) => ({
        specifier: e.moduleRequest?.value ?? "",
        names: [e.importName.kind === "Name" ? (e.importName.name ?? "*") : "*"],
        typeOnly: e.isType,
        line: line(statement.start),
      })),
  );
  return [...imports, ...reExports];
}

/** `import("./x.ts").Name` in a type. */
function importedTypes(body: readonly SyntaxNode[], line: LineOf): ImportUse[] {
  const found: ImportUse[] = [];
  for (const statement of body) {
    walk(statement, (node) => {
      if (node.type !== "TSImportType") return;
      const { value } = node["source"] as { value: string };
      found.push({ specifier: value, names: ["*"], typeOnly: true, line: line(node.start) });
    });
  }
  return found;
}

/** `import("./x.ts")` and `new URL("./x.ts", import.meta.url)` load a module whole. */
function loadsAtRunTime(result: ParseResult, text: string, line: LineOf): ImportUse[] {
  const dynamic = result.module.dynamicImports.map((entry) => ({
    specifier: text
      .slice(entry.moduleRequest.start, entry.moduleRequest.end)
      .replace(/^["'`]|["'`]$/g, ""),
    names: ["*"],
    typeOnly: false,
    line: line(entry.start),
  }));
  // The extension may come from import.meta.url, so only the stem is matched.
  const byUrl = [...text.matchAll(/new URL\(\s*["'`](\.[\w./-]+?)(?:\.ts|\.js|\$\{)/g)].map(
    (match) => ({
      specifier: `${match[1]}.ts`,
      names: ["*"],
      typeOnly: true,
      isStart: true,
      line: line(match.index),
    }),
  );
  return [...dynamic, ...byUrl];
}

function exportedNames(
  module: ModuleRecord,
  body: readonly SyntaxNode[],
  line: LineOf,
): ExportedName[] {
  const types = new Set(
    body
      .filter((node) => node.type === "ExportNamedDeclaration")
      .map((node) => node["declaration"] as SyntaxNode | null)
      .filter((d) => d?.type === "TSInterfaceDeclaration" || d?.type === "TSTypeAliasDeclaration")
      .map((d) => d?.start),
  );
  return module.staticExports.flatMap((statement) =>
    statement.entries.map((entry) => ({
      name: entry.exportName.kind === "Default" ? "default" : (entry.exportName.name ?? "*"),
      typeOnly: entry.isType || types.has(declarationStart(body, statement.start)),
      line: line(statement.start),
    })),
  );
}

function declarationStart(body: readonly SyntaxNode[], start: number): number | undefined {
  const node = body.find((candidate) => candidate.start === start);
  return (node?.["declaration"] as SyntaxNode | null | undefined)?.start;
}

/** Calls `visit` for the node and everything under it, with the node's parent. */
export function walk(
  node: SyntaxNode,
  visit: (node: SyntaxNode, parent: SyntaxNode | undefined) => void,
  parent?: SyntaxNode,
): void {
  visit(node, parent);
  for (const field in node) {
    const value = node[field];
    if (!Array.isArray(value)) {
      if (isNode(value)) walk(value, visit, node);
      continue;
    }
    for (const child of value) if (isNode(child)) walk(child, visit, node);
  }
}

/** The problems of single nodes, each with its place. */
export function find(
  file: SourceFile,
  problemOf: (node: SyntaxNode) => string | undefined,
): string[] {
  const problems: string[] = [];
  for (const statement of file.body) {
    walk(statement, (node) => {
      const problem = problemOf(node);
      if (problem) problems.push(`${file.path}:${lineAt(file.text, node.start)}: ${problem}`);
    });
  }
  return problems;
}

function isNode(value: unknown): value is SyntaxNode {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}

/** The line, from 1, of an offset in the text. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let i = text.indexOf("\n"); i !== -1 && i < offset; i = text.indexOf("\n", i + 1)) line++;
  return line;
}

export function isTest(path: string): boolean {
  return (
    /\.test\.\w+$|\/(testing|test)\/|\/test-[\w-]+\.ts$/.test(path) ||
    path.startsWith("libs/simulation/")
  );
}

function isGenerated(path: string): boolean {
  return path.includes("/generated/");
}

/** Files that git tracks or would track, so that build outputs are never read. */
export function repositoryFiles(root: string): string[] {
  const list = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 2 ** 26,
  });
  // In the middle of a merge a file has an entry for each side.
  const paths = new Set(list.split("\0"));
  // Files that are not tracked yet come first in git's list.
  return [...paths].filter((path) => path !== "" && existsSync(join(root, path))).sort();
}

/** AssemblyScript has TypeScript's suffix and a grammar of its own. */
function isAssembly(path: string): boolean {
  return path.includes("/assembly/");
}

/** Every hand-written source file of the repository. */
export function readSources(root: string, paths = repositoryFiles(root)): SourceFile[] {
  return paths
    .filter((path) => /\.(ts|tsx|mts|mjs)$/.test(path) && !isGenerated(path) && !isAssembly(path))
    .map((path) => parseSource(path, readFileSync(join(root, path), "utf8")));
}

/** The definitions of the wire protocol, for rules about comments. */
export function readProtos(root: string, paths: readonly string[]): SourceFile[] {
  return paths
    .filter((path) => path.endsWith(".proto"))
    .map((path) => parseProto(path, readFileSync(join(root, path), "utf8")));
}
