// Writes `packaged/`: the compiled programs as they run in a cluster and as `npm pack` carries them. The
// layout is the repository's. Imports of workspace packages are relative, and the third-party modules are
// bundled into a few files: loading a thousand small ones is most of a program's start.
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseSync } from "oxc-parser";
import { EXTERNAL, fileOf, writeVendor } from "./vendor.mjs";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const TARGET = join(ROOT, "packaged");
/** What was written, from what: nothing is written twice from the same. */
const STAMP = join(TARGET, ".stamp.json");
const APPS = ["cli", "master", "parameter-server", "trainer", "worker"];
/** A module of a workspace package as compiled code names it. */
const WORKSPACE_MODULE = /"@heddle\/([a-z-]+)\/([\w./-]+)"/g;

/** Brings `packaged/` up to date with what the compiler wrote; milliseconds where nothing changed. */
export async function writePrograms() {
  const made = stampOfTools();
  const old = readStamp(made);
  if (!old) rmSync(TARGET, { recursive: true, force: true });
  const modules = {};
  for (const folder of packageFolders()) {
    for (const path of modulesOf(folder)) modules[path] = copyModule(path, old?.modules[path]);
    writeManifest(folder);
  }
  for (const path of Object.keys(old?.modules ?? {})) {
    if (!modules[path]) rmSync(join(TARGET, path), { force: true });
  }
  const imports = importedNames(Object.values(modules));
  if (JSON.stringify(imports) !== JSON.stringify(old?.imports)) {
    await writeVendor(ROOT, join(TARGET, "vendor"), imports);
  }
  cpSync(join(ROOT, "proto"), join(TARGET, "proto"), { recursive: true });
  replaceFile(STAMP, JSON.stringify({ made, imports, modules }));
}

/** Changes with the packages that are installed and with this tool. */
function stampOfTools() {
  const files = ["node_modules/.package-lock.json", "tools/programs.mjs", "tools/vendor.mjs"];
  return files.map((file) => statSync(join(ROOT, file), { throwIfNoEntry: false })?.mtimeMs ?? 0);
}

function readStamp(made) {
  if (!existsSync(STAMP)) return undefined;
  const stamp = JSON.parse(readFileSync(STAMP, "utf8"));
  return JSON.stringify(stamp.made) === JSON.stringify(made) ? stamp : undefined;
}

function packageFolders() {
  // Only tests use the simulation.
  const libs = readdirSync(join(ROOT, "libs")).filter((lib) => lib !== "simulation");
  return [...APPS.map((app) => `apps/${app}`), ...libs.map((lib) => `libs/${lib}`)];
}

function modulesOf(folder) {
  return readdirSync(join(ROOT, folder, "dist"), { recursive: true })
    .map((name) => name.replaceAll("\\", "/"))
    .filter((name) => /\.(js|wasm)$/.test(name) && !name.split("/").includes("testing"))
    .map((name) => `${folder}/dist/${name}`);
}

/** Copies a module that has changed; returns its time and what it imports from third parties. */
function copyModule(path, old) {
  const { mtimeMs } = statSync(join(ROOT, path));
  if (old?.mtimeMs === mtimeMs) return old;
  mkdirSync(dirname(join(TARGET, path)), { recursive: true });
  if (path.endsWith(".wasm")) {
    cpSync(join(ROOT, path), join(TARGET, path));
    return { mtimeMs, imports: [] };
  }
  const text = readFileSync(join(ROOT, path), "utf8");
  const imports = thirdPartyImports(path, text);
  let rewritten = text;
  // From the end, so that the earlier places stay where they are.
  for (const { module, start, end } of imports.toReversed()) {
    const file = JSON.stringify(relativeModule(path, `vendor/${fileOf(module)}`));
    rewritten = rewritten.slice(0, start) + file + rewritten.slice(end);
  }
  rewritten = rewritten
    .replace(/^\/\/# sourceMappingURL=.*$/gm, "")
    .replace(WORKSPACE_MODULE, (_, lib, module) =>
      JSON.stringify(relativeModule(path, `libs/${lib}/dist/${module}.js`)),
    );
  replaceFile(join(TARGET, path), rewritten);
  return { mtimeMs, imports: imports.map(({ module, names }) => ({ module, names })) };
}

/** The imports of bundled modules, in the order of the text, each with the names that it takes. */
function thirdPartyImports(path, text) {
  const { staticImports, staticExports, dynamicImports } = parseSync(path, text).module;
  const requests = [
    ...staticImports,
    ...staticExports.map(({ entries }) => ({ entries, moduleRequest: entries[0].moduleRequest })),
    ...dynamicImports.map(({ moduleRequest: { start, end } }) => ({
      moduleRequest: { value: literalOf(text.slice(start, end)), start, end },
      entries: [{ importName: { kind: "NamespaceObject" } }],
    })),
  ];
  return requests
    .filter(({ moduleRequest: request }) => request && isBundled(request.value))
    .map(({ moduleRequest: { value, start, end }, entries }) => {
      const names = entries.map(({ importName: { kind, name } }) =>
        kind === "Default" ? "default" : name,
      );
      if (names.every((name) => typeof name === "string"))
        return { module: value, start, end, names };
      throw new Error(`${path} takes all of ${value}: import by name, in a module of its own`);
    })
    .sort((one, other) => one.start - other.start);
}

/** What a literal names; an expression is a path that is known only when the program runs. */
const literalOf = (code) => /^"([^"]+)"$/.exec(code)?.[1] ?? "./";

function isBundled(module) {
  const isOwn = module.startsWith(".") || module.startsWith("@heddle/");
  return !isOwn && !isBuiltin(module) && !EXTERNAL.some((name) => module.startsWith(name));
}

function relativeModule(from, to) {
  const path = relative(dirname(from), to).replaceAll("\\", "/");
  return path.startsWith(".") ? path : `./${path}`;
}

/** The names that the modules take of each third-party module, sorted. */
function importedNames(modules) {
  const taken = new Map();
  for (const { module, names } of modules.flatMap(({ imports }) => imports)) {
    taken.set(module, new Set([...(taken.get(module) ?? []), ...names]));
  }
  const sorted = [...taken].map(([module, names]) => [module, [...names].sort()]);
  return Object.fromEntries(sorted.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function writeManifest(folder) {
  const { name, version, license, type } = JSON.parse(
    readFileSync(join(ROOT, folder, "package.json"), "utf8"),
  );
  const manifest = JSON.stringify({ name, version, license, type, private: true }, null, 2);
  replaceFile(join(TARGET, folder, "package.json"), `${manifest}\n`);
}

/** At once, for programs that start meanwhile; another run may write the same. */
function replaceFile(path, text) {
  const own = `${path}.${process.pid}`;
  writeFileSync(own, text);
  renameSync(own, path);
}

/** Vitest calls it before the tests, which start these programs. */
export default writePrograms;

if (process.argv[1] === fileURLToPath(import.meta.url)) await writePrograms();
