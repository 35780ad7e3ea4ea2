// `npm start` and `npm test` first install the packages when they are missing or out of date, then
// compile: a fresh clone needs no other command. Plain JavaScript without dependencies, because it
// runs before anything is installed, on Node 20 too.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chooseNode } from "../bin/launch.mjs";

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const MODULES = join(ROOT, "node_modules");
const STAMP = join(MODULES, ".heddle-setup");
const MAIN = join(ROOT, "apps", "cli", "dist", "main.js");

/** Installs and compiles what is out of date; ends the process with one clear line on failure. */
export function setUp() {
  if (!packagesAreInstalled()) install();
  const node = chooseNode();
  compile(node);
  return { node, env: childEnvironment() };
}

/** The environment in which `node` means the workspace's own Node. */
export function childEnvironment() {
  const bin = join(MODULES, ".bin");
  return { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH ?? ""}` };
}

function manifests() {
  const files = ["package-lock.json", "package.json"].map((name) => join(ROOT, name));
  for (const folder of ["libs", "apps"]) {
    const parent = join(ROOT, folder);
    if (!existsSync(parent)) continue;
    for (const name of readdirSync(parent).sort()) files.push(join(parent, name, "package.json"));
  }
  return files.filter((file) => existsSync(file));
}

function fingerprint(files) {
  const hash = createHash("sha256").update(`${process.platform}-${process.arch}\n`);
  for (const file of files) hash.update(readFileSync(file)).update("\0");
  return hash.digest("hex");
}

/** True when this script's stamp fits the manifests, or npm itself installed after they changed. */
function packagesAreInstalled() {
  const files = manifests();
  if (existsSync(STAMP)) return readFileSync(STAMP, "utf8") === fingerprint(files);
  const installed = join(MODULES, ".package-lock.json");
  if (!existsSync(installed)) return false;
  const installedAtMs = statSync(installed).mtimeMs;
  return files.every((file) => statSync(file).mtimeMs <= installedAtMs);
}

function install() {
  const startedAtMs = Date.now();
  say("installing packages (npm install); the first time this takes about a minute ...");
  // --no-save: a lockfile written on another platform must not make the clone dirty.
  const args = ["install", "--no-save", "--no-fund", "--no-audit", "--loglevel=error"];
  const { status, error } = spawnSync("npm", args, {
    cwd: ROOT,
    stdio: ["ignore", process.stderr, process.stderr],
    shell: process.platform === "win32",
  });
  if (status !== 0) {
    fail(
      `npm install failed${error ? ` (${error.message})` : ""}. ` +
        "Check that npm reaches its registry (npm ping), then run this command again.",
    );
  }
  mkdirSync(MODULES, { recursive: true });
  writeFileSync(STAMP, fingerprint(manifests()));
  say(`packages are installed (${seconds(startedAtMs)})`);
}

function compile(node) {
  const startedAtMs = Date.now();
  const tsc = join(MODULES, "typescript", "bin", "tsc");
  if (!existsSync(tsc)) {
    fail("node_modules is incomplete (no typescript). Delete node_modules and run this again.");
  }
  const first = !existsSync(MAIN);
  if (first) say("compiling ...");
  const { status } = spawnSync(node, [tsc, "-b"], {
    cwd: ROOT,
    stdio: ["ignore", process.stderr, process.stderr],
    env: childEnvironment(),
  });
  if (status !== 0) fail("the TypeScript build failed; its errors are above.");
  const written = spawnSync(node, [join(ROOT, "tools", "programs.mjs")], {
    stdio: ["ignore", process.stderr, process.stderr],
  });
  if (written.status !== 0) fail("the programs could not be bundled; the error is above.");
  if (first) say(`compiled (${seconds(startedAtMs)})`);
}

function seconds(sinceMs) {
  return `${((Date.now() - sinceMs) / 1000).toFixed(1)} s`;
}

function say(line) {
  process.stderr.write(`heddle: ${line}\n`);
}

function fail(line) {
  say(line);
  process.exit(1);
}

/** For commands that must not wait for a compiler each time: sets up only what was never set up. */
export function setUpIfMissing() {
  const isSetUp = existsSync(join(MODULES, ".package-lock.json")) && existsSync(MAIN);
  if (!isSetUp) setUp();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) setUp();
