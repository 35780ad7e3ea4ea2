// Starts one of Heddle's programs: from a clone, which is set up first where it is not, or from an
// installed package. Plain JavaScript without dependencies, since it also runs on Node 20.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import module, { createRequire } from "node:module";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { watchNpm } from "./npm-watch.mjs";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const SETUP = join(ROOT, "tools", "setup.mjs");
const OLDEST_NODE = [22, 12];
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/**
 * Runs the compiled program of an app (`cli`, `master`, ...) with this process's arguments: in this
 * process where its Node is new enough, else in a child on the packaged Node 24.
 */
export async function launch(app) {
  if (process.argv.length === 3 && process.argv[2] === "--version") {
    process.stdout.write(`${manifest().version}\n`);
    return;
  }
  keepCompiledModules();
  const { code, env } = await installation();
  const main = join(code, "apps", app, "dist", "main.js");
  const isOfNpm = process.env.npm_lifecycle_event !== undefined;
  if (isNewEnough() && !isOfNpm) {
    process.argv[1] = main;
    await import(pathToFileURL(main).href);
    return;
  }
  runChild(chooseNode(), [main, ...process.argv.slice(2)], env);
}

/**
 * Has Node keep compiled modules in `node_modules/.cache`, here and in all children; a sixth of a start
 * is compiling. A folder that cannot be written changes nothing, and NODE_COMPILE_CACHE wins.
 */
export function keepCompiledModules() {
  const modules = isClone() ? join(ROOT, "node_modules") : dirname(ROOT);
  process.env.NODE_COMPILE_CACHE ??= join(modules, ".cache", "heddle-compiled");
  module.enableCompileCache?.(process.env.NODE_COMPILE_CACHE); // Since Node 22.8.
}

/** Where the compiled code is. A clone has the tools that compile it; a package has the result. */
async function installation() {
  if (!isClone()) return { code: join(ROOT, "packaged"), env: process.env };
  const { setUpIfMissing, childEnvironment } = await import(pathToFileURL(SETUP).href);
  setUpIfMissing();
  return { code: ROOT, env: childEnvironment() };
}

function isClone() {
  return existsSync(SETUP);
}

/**
 * Runs a program with this process's streams and signals, and ends with its exit code. The child ends
 * when this process is gone (by its IPC channel), and this process ends it when npm is gone.
 */
export function runChild(node, args, env) {
  const child = spawn(node, args, { stdio: ["inherit", "inherit", "inherit", "ipc"], env });
  const watch = watchNpm(() => child.kill("SIGTERM"));
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      // A later SIGTERM would force the end.
      watch.stop();
      child.kill(signal);
    });
  }
  child.on("error", (error) => {
    process.stderr.write(`heddle: could not start ${node}: ${error.message}\n`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
  });
}

/** The packaged Node 24, or the running one where this platform has none. */
export function chooseNode() {
  const own = packagedNode();
  if (own !== undefined) return own;
  if (isNewEnough()) return process.execPath;
  process.stderr.write(
    `heddle: Node ${process.versions.node} is too old, and no packaged Node 24 was installed for ` +
      `${process.platform}-${process.arch}. Install Node ${OLDEST_NODE.join(".")} or newer ` +
      "from https://nodejs.org, then run this command again.\n",
  );
  return process.exit(1);
}

function isNewEnough() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_NODE;
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}

function manifest() {
  return JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
}

/** The program of the optional dependency that carries Node for this platform. */
function packagedNode() {
  const { optionalDependencies } = manifest();
  const platform = process.platform === "win32" ? "win" : process.platform;
  const name = Object.keys(optionalDependencies).find(
    (each) => each.startsWith("node-") && each.endsWith(`-${platform}-${process.arch}`),
  );
  if (name === undefined) return undefined;
  try {
    const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`);
    const { bin } = JSON.parse(readFileSync(manifest, "utf8"));
    return join(dirname(manifest), typeof bin === "string" ? bin : bin.node);
  } catch {
    return undefined; // npm leaves out what does not fit the platform.
  }
}
