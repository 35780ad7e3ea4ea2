import { dirname, join, normalize } from "node:path/posix";
import { isTest, lineAt, type SourceFile, type SyntaxNode, walk } from "./source-file.ts";

/** Rules about the dependencies of files: layers, purity, cycles, dead exports. */

/** What each lib may import; an app may import every lib, and nothing may import an app. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  base: [],
  contracts: ["base"],
  raft: ["base"],
  storage: ["base"],
  "event-store": ["base", "kernels", "storage"],
  consensus: ["base", "contracts", "observability", "pki", "raft", "rpc", "storage"],
  control: ["base", "contracts", "scheduler"],
  scheduler: ["base"],
  training: ["base"],
  backends: ["base", "training"],
  kernels: [],
  parameters: ["base", "contracts", "kernels", "pki", "rpc", "training"],
  "node-agent": ["base", "contracts", "observability", "pki", "rpc"],
  pki: ["base", "observability"],
  rpc: ["base", "contracts", "pki"],
  auth: ["base", "contracts"],
  observability: ["base"],
  engines: ["base", "contracts", "client"],
  client: ["contracts"],
  "plugin-kit": ["base", "contracts", "observability", "training"],
};

/** Where libs may use Nest: the transport of gRPC, and the ground of a node. */
const NEST_LIBS = /^libs\/(rpc\/src\/(nest|testing)\/|node-agent\/)/;

const PURE = new Set(["raft", "control", "scheduler", "training"]);

/** Packages whose every export is for people outside this repository. */
const PUBLIC = /^libs\/client\/src\//;

/** Exports whose users are meant to be tests, in every package. */
const FOR_TESTS = new Set([
  "apps/master/src/nodes/node-offer.ts: gpuTypeOf",
  "apps/trainer/src/run/code-version.ts: codeDigest",
  "libs/control/src/jobs/records/lifecycle.ts: MAX_LOSSES",
  "libs/event-store/src/export/tile-files.ts: tileFiles",
  "libs/engines/src/gguf/tensor-encoding.ts: halfBits",
  "libs/engines/src/llama/parent/llama-engine.ts: LlamaEngine",
  "libs/engines/src/llama/sampling/logprobs.ts: topTokens",
  "libs/training/src/compression/top-k.ts: addSparse",
  "libs/training/src/language-model/language-model.ts: languageModelLogits",
  "libs/training/src/sharding/sharding-plan.ts: PARTITION_ELEMENTS",
]);

export function layering(files: readonly SourceFile[]): string[] {
  return files.flatMap((file) =>
    file.imports.flatMap(({ specifier, isStart, line }) => {
      const problem = isStart ? undefined : layerProblem(file.path, specifier);
      return problem ? [`${file.path}:${line}: ${problem}`] : [];
    }),
  );
}

function layerProblem(path: string, specifier: string): string | undefined {
  const here = owner(path);
  if (!here) return undefined;
  if (here.kind === "libs" && specifier.startsWith("@nestjs/") && !NEST_LIBS.test(path)) {
    return "Nest belongs to the apps";
  }
  const target = importedOwner(path, specifier);
  if (!target || (target.kind === here.kind && target.name === here.name)) return undefined;
  if (specifier.startsWith(".")) return `reaches into ${target.kind}/${target.name} by path`;
  if (target.kind === "apps") return `imports the app ${target.name}; nothing imports an app`;
  if (here.kind === "apps" || isTest(path)) return undefined;
  const allowed = LAYERS[here.name];
  if (!allowed) return `libs/${here.name} is not in the layering table (tools/tidy/graph-rules.ts)`;
  if (allowed.includes(target.name)) return undefined;
  return `libs/${here.name} may import ${allowed.join(", ") || "nothing"}, not ${target.name}`;
}

interface Owner {
  readonly kind: "libs" | "apps";
  readonly name: string;
}

function owner(path: string): Owner | undefined {
  const match = /^(libs|apps)\/([^/]+)\//.exec(path);
  return match ? { kind: match[1] as Owner["kind"], name: match[2] ?? "" } : undefined;
}

const APPS = new Set([
  "master",
  "worker",
  "parameter-server",
  "cli",
  "trainer",
  "operator",
  "console",
]);

function importedOwner(path: string, specifier: string): Owner | undefined {
  if (specifier.startsWith(".")) return owner(normalize(join(dirname(path), specifier)));
  const name = /^@heddle\/([^/]+)/.exec(specifier)?.[1];
  return name ? { kind: APPS.has(name) ? "apps" : "libs", name } : undefined;
}

/** The most files of one kind in a folder. Tests beside their source are a kind of their own. */
const MAX_FOLDER_FILES = 20;

export function folderSize(files: readonly SourceFile[]): string[] {
  const counts = new Map<string, number>();
  for (const { path } of files) {
    const folder = dirname(path);
    const isTestFolder = /\/(?:testing|test)(?:\/|$)/.test(folder);
    const kind = /\.test\.\w+$/.test(path) && !isTestFolder ? "test" : "source";
    const key = `${folder} ${kind}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts]
    .filter(([, count]) => count > MAX_FOLDER_FILES)
    .map(([key, count]) => `${key} files: ${count}, more than ${MAX_FOLDER_FILES}`);
}

export function purity(files: readonly SourceFile[]): string[] {
  return files
    .filter((file) => !isTest(file.path) && isPure(file.path))
    .flatMap((file) => [...impureImports(file), ...impureCalls(file)]);
}

function isPure(path: string): boolean {
  const here = owner(path);
  return here?.kind === "libs" && PURE.has(here.name);
}

function impureImports(file: SourceFile): string[] {
  return file.imports
    .filter(
      ({ specifier, names }) =>
        /^(node:|@nestjs\/|@grpc\/)/.test(specifier) ||
        (specifier === "@heddle/base/clock" && names.includes("systemClock")),
    )
    .map(({ specifier, line }) => `${file.path}:${line}: a pure lib imports ${specifier}`);
}

const IMPURE_GLOBALS = new Set([
  "performance",
  "process",
  "crypto",
  "fetch",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "queueMicrotask",
]);

function impureCalls(file: SourceFile): string[] {
  const problems: string[] = [];
  const report = (node: SyntaxNode, what: string) =>
    problems.push(`${file.path}:${lineAt(file.text, node.start)}: a pure lib uses ${what}`);
  for (const statement of file.body) {
    walk(statement, (node, parent) => {
      const what = impureUse(node, parent);
      if (what) report(node, what);
    });
  }
  return problems;
}

function impureUse(node: SyntaxNode, parent: SyntaxNode | undefined): string | undefined {
  if (node.type === "NewExpression" && isGlobal(node["callee"], "Date")) {
    return (node["arguments"] as unknown[]).length === 0 ? "new Date()" : undefined;
  }
  if (node.type === "MemberExpression") {
    const property = (node["property"] as { name?: string }).name;
    if (isGlobal(node["object"], "Date") && property === "now") return "Date.now";
    if (isGlobal(node["object"], "Math") && property === "random") return "Math.random";
    return isImpureGlobal(node["object"]);
  }
  return node.type === "CallExpression" && parent ? isImpureGlobal(node["callee"]) : undefined;
}

function isGlobal(node: unknown, name: string): boolean {
  const { type, name: found } = node as { type: string; name?: string };
  return type === "Identifier" && found === name;
}

function isImpureGlobal(node: unknown): string | undefined {
  const { type, name } = node as { type: string; name?: string };
  return type === "Identifier" && name && IMPURE_GLOBALS.has(name) ? name : undefined;
}

/** The repository path of an import, if it is a file of the repository. */
export function resolveImport(
  path: string,
  specifier: string,
  known: ReadonlySet<string>,
): string | undefined {
  const target = specifier.startsWith(".")
    ? normalize(join(dirname(path), specifier))
    : specifier.replace(
        /^@heddle\/([^/]+)\/(.+)$/,
        (_all, name: string, file: string) =>
          `${APPS.has(name) ? "apps" : "libs"}/${name}/src/${file}.ts`,
      );
  // Tests and tools may name a build output, which means its source.
  const source = target.replace(/^((?:libs|apps)\/[^/]+)\/dist\/(.+)\.js$/, "$1/src/$2.ts");
  return known.has(source) ? source : undefined;
}

/** One problem for each circle of imports; those of types count, starts of processes do not. */
export function cycles(files: readonly SourceFile[]): string[] {
  const known = new Set(files.map((file) => file.path));
  const edges = new Map(
    files.map((file) => [
      file.path,
      file.imports
        .filter((use) => !use.isStart)
        .map((use) => resolveImport(file.path, use.specifier, known))
        .filter((target) => target !== undefined),
    ]),
  );
  return circles(edges).map((circle) => `${circle[0]}:1: an import cycle: ${circle.join(" -> ")}`);
}

/** The circles that a walk along the edges meets, each with its first node at both ends. */
function circles(edges: ReadonlyMap<string, Iterable<string>>): string[][] {
  const done = new Set<string>();
  const found: string[][] = [];
  const visit = (node: string, trail: readonly string[]): void => {
    const at = trail.indexOf(node);
    if (at >= 0) found.push([...trail.slice(at), node]);
    else if (!done.has(node)) {
      for (const target of edges.get(node) ?? []) visit(target, [...trail, node]);
      done.add(node);
    }
  };
  for (const node of edges.keys()) visit(node, []);
  return found;
}

/** Imports of a lib's top folder from one that imports it. A new one needs another place for its file. */
const FOLDER_EXCEPTIONS = new Set([
  "libs/consensus/src/snapshots -> libs/consensus/src/replica",
  "libs/control/src/jobs -> libs/control/src/audit",
  "libs/control/src/jobs -> libs/control/src/secrets",
  "libs/engines/src/gguf -> libs/engines/src/weights",
  "libs/engines/src/llama -> libs/engines/src/shards",
  "libs/parameters/src/shards -> libs/parameters/src/data-plane",
  "libs/raft/src/log -> libs/raft/src/core",
  "libs/raft/src/membership -> libs/raft/src/core",
  "libs/raft/src/tracker -> libs/raft/src/core",
]);

/**
 * One problem for each import cycle between top folders, those below the `src` of an app or a lib, and
 * for each needless exception. Nest modules and files beside the folders may import every one.
 */
export function folderCycles(
  files: readonly SourceFile[],
  exceptions: ReadonlySet<string> = FOLDER_EXCEPTIONS,
): string[] {
  const needless = new Set(exceptions);
  const known = new Set(files.map(({ path }) => path));
  const folders = new Map<string, Set<string>>();
  for (const { path, imports } of files) {
    const from = isTest(path) || path.endsWith(".module.ts") ? undefined : roomOf(path);
    if (from === undefined) continue;
    for (const { specifier, isStart } of imports) {
      const target = isStart ? undefined : resolveImport(path, specifier, known);
      const to = target && !target.endsWith(".module.ts") ? roomOf(target) : undefined;
      if (to === undefined || to === from) continue;
      needless.delete(`${from} -> ${to}`);
      if (exceptions.has(`${from} -> ${to}`)) continue;
      folders.set(from, (folders.get(from) ?? new Set()).add(to));
    }
  }
  return [
    ...circles(folders).map(
      (circle) => `${circle[0]}: top folders import each other: ${circle.join(" -> ")}`,
    ),
    ...[...needless].map((exception) => `${exception}: no import needs this exception`),
  ];
}

/** The first folder below the `src` of an app or a lib. */
function roomOf(path: string): string | undefined {
  return /^((?:apps|libs)\/[^/]+\/src\/[^/]+)\//.exec(path)?.[1];
}

/**
 * Exports of libs and apps that no other file uses; a use in a test does not count. A type that
 * another declaration of its file names is part of that declaration's contract, and lives.
 */
export function deadExports(files: readonly SourceFile[]): string[] {
  return unusedExports(files)
    .filter(({ path, name }) => !FOR_TESTS.has(`${path}: ${name}`))
    .map(({ path, name, line }) => `${path}:${line}: ${name} is exported and nothing imports it`);
}

/** Exceptions of `deadExports` for exports that are gone, or that other files use. */
export function needlessExceptions(files: readonly SourceFile[]): string[] {
  const unused = new Set(unusedExports(files).map(({ path, name }) => `${path}: ${name}`));
  return [...FOR_TESTS].filter((exception) => !unused.has(exception));
}

function unusedExports(
  files: readonly SourceFile[],
): { readonly path: string; readonly name: string; readonly line: number }[] {
  const known = new Set(files.map((file) => file.path));
  const used = new Map<string, Set<string>>();
  for (const file of files.filter((candidate) => !isTest(candidate.path))) {
    for (const use of file.imports) {
      const target = resolveImport(file.path, use.specifier, known);
      if (!target) continue;
      const names = used.get(target) ?? new Set();
      for (const name of use.names) names.add(name);
      used.set(target, names);
    }
  }
  return files
    .filter(
      ({ path }) => /^(libs|apps)\/[^/]+\/src\//.test(path) && !isTest(path) && !PUBLIC.test(path),
    )
    .flatMap((file) => {
      const names = used.get(file.path) ?? new Set();
      return file.exports
        .filter(
          ({ name, typeOnly }) =>
            !(names.has("*") || names.has(name)) && !(typeOnly && isNamedTwice(file, name)),
        )
        .map(({ name, line }) => ({ path: file.path, name, line }));
    });
}

function isNamedTwice(file: SourceFile, name: string): boolean {
  return (file.text.match(new RegExp(`\\b${name}\\b`, "g")) ?? []).length > 1;
}
