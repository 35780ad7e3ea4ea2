// Writes `packaged/`: the compiled programs as they run in a cluster and as `npm pack` carries them, each
// bundled with all that it imports. Loading a thousand small modules is most of a program's start.
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundlePrograms, licensesOf } from "./bundle.mjs";
import { bundleConsole, consoleInputs, SITE } from "./console.mjs";
import { declarationsOf } from "./packages/declarations.mjs";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const TARGET = join(ROOT, "packaged");
/** What is started as a process or a thread, by its name, and the module that plugins import. */
const PROGRAM = /(^|\/)(main|[\w-]+-(main|thread)|engine-process|plugin-kit)\.js$/;
/** Programs of tests: a master and a worker with scripted parts. */
const TEST_PROGRAMS = "{apps,libs}/*/test/scripted-{main,worker}.ts";
const TEST_TARGET = join(ROOT, "node_modules/.cache/heddle-test-programs");
const TOOLS = [
  "node_modules/.package-lock.json",
  "tools/programs.mjs",
  "tools/bundle.mjs",
  "tools/packages/declarations.mjs",
];
/** What was written, from what: nothing is written twice from the same. */
const STAMP = ".stamp.json";
/** The licenses of what is bundled, beside it. */
const LICENSES = "LICENSES.txt";

/** Brings the console's files up to date with its sources. */
export function writeConsole() {
  const inputs = [...consoleInputs(ROOT), ...TOOLS];
  return bringUpToDate(join(ROOT, SITE), inputs, async () => {
    const { files, modules } = await bundleConsole(ROOT);
    return [...files, { path: LICENSES, code: licensesOf(modules) }];
  });
}

/** Brings `packaged/` up to date with what the compiler wrote; milliseconds where nothing changed. */
export async function writePrograms() {
  await writeConsole();
  const modules = compiledModules();
  const inputs = [...modules, `${SITE}/${STAMP}`, ...TOOLS];
  return bringUpToDate(TARGET, inputs, async () => {
    const programs = modules.filter((path) => PROGRAM.test(path));
    const { files, modules: bundled } = await bundlePrograms(ROOT, programs, TARGET);
    const manifests = packageFolders().map(manifestOf);
    const licenses = { path: LICENSES, code: licensesOf(bundled) };
    return [...manifests, ...files, ...pluginKitTypes(), ...consoleFiles(), licenses];
  });
}

function pluginKitTypes() {
  const texts = declarationsOf(ROOT, ["libs/plugin-kit/dist/plugin-kit.d.ts"]);
  return [...texts].map(([path, code]) => ({ path, code }));
}

function consoleFiles() {
  const names = globSync("**/*.*", { cwd: join(ROOT, SITE) });
  return names.map((name) => {
    const path = `${SITE}/${name.replaceAll("\\", "/")}`;
    return { path, code: readFileSync(join(ROOT, path)) };
  });
}

/** Vitest calls it before the tests, which start these programs. */
export default async function writeAllPrograms() {
  await writePrograms();
  const sources = globSync("{apps,libs}/*/test/**/*.ts", { cwd: ROOT });
  await bringUpToDate(TEST_TARGET, [...compiledModules(), ...sources, ...TOOLS], async () => {
    const programs = globSync(TEST_PROGRAMS, { cwd: ROOT });
    const { files } = await bundlePrograms(ROOT, programs, TEST_TARGET, TARGET);
    return [{ path: "package.json", code: '{ "type": "module" }\n' }, ...files];
  });
}

/** Writes the files into a folder if they were not made of the same inputs; the last time's go. */
async function bringUpToDate(folder, inputs, make) {
  const made = digestOf(inputs);
  const stamp = join(folder, STAMP);
  const old = existsSync(stamp) ? JSON.parse(readFileSync(stamp, "utf8")) : {};
  if (old.made === made) return;
  const files = await make();
  // An earlier release kept other stamps.
  if (!old.files) rmSync(folder, { recursive: true, force: true });
  for (const { path, code } of files) replaceFile(join(folder, path), code);
  const paths = files.map(({ path }) => path);
  for (const path of old.files ?? []) {
    if (!paths.includes(path)) rmSync(join(folder, path), { force: true });
  }
  replaceFile(stamp, JSON.stringify({ made, files: paths }));
}

function digestOf(paths) {
  const hash = createHash("sha256");
  for (const path of paths) {
    const { mtimeMs = 0 } = statSync(join(ROOT, path), { throwIfNoEntry: false }) ?? {};
    hash.update(`${path}\0${mtimeMs}\0`);
  }
  return hash.digest("hex");
}

function packageFolders() {
  return ["apps", "libs"].flatMap((kind) =>
    readdirSync(join(ROOT, kind)).map((name) => `${kind}/${name}`),
  );
}

/** The modules of packages that run in a cluster: not the simulation and the console. */
function compiledModules() {
  return packageFolders()
    .filter((folder) => !["libs/simulation", "apps/console"].includes(folder))
    .flatMap((folder) =>
      readdirSync(join(ROOT, folder, "dist"), { recursive: true })
        .map((name) => `${folder}/dist/${name.replaceAll("\\", "/")}`)
        .filter((path) => path.endsWith(".js") && !path.split("/").includes("testing")),
    );
}

function manifestOf(folder) {
  const text = readFileSync(join(ROOT, folder, "package.json"), "utf8");
  const { name, version, license, type } = JSON.parse(text);
  const manifest = JSON.stringify({ name, version, license, type, private: true }, null, 2);
  return { path: `${folder}/package.json`, code: `${manifest}\n` };
}

/** At once, for programs that start meanwhile; another run may write the same. */
function replaceFile(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  const own = `${path}.${process.pid}`;
  writeFileSync(own, text);
  renameSync(own, path);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await writePrograms();
