// Vitest's global set-up: the programs that tests start as processes are bundled, so that a start
// reads a few files in place of some 1,500, and costs a quarter to a half less. use-bundles.mjs has Node
// read the bundles. HEDDLE_TEST_BUNDLES=off does without, for stack traces that name the sources.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { rolldown } from "rolldown";
import { BUNDLE_FOLDER, MANIFEST } from "./use-bundles.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** What is started by its path, be it a process or a thread. */
const PROGRAMS = [
  "apps/cli/dist/main.js",
  "apps/master/dist/main.js",
  "apps/master/dist/consensus/thread/raft-thread.js",
  "apps/master/test/scripted-main.ts",
  "apps/parameter-server/dist/main.js",
  "apps/parameter-server/dist/shard/shard-thread.js",
  "apps/worker/dist/main.js",
  "apps/worker/dist/training/plugin-names.js",
  "apps/worker/dist/training/trainer-main.js",
  "apps/worker/test/scripted-worker.ts",
  "libs/engines/dist/llama/engine-process.js",
  "libs/engines/dist/llama/engine-thread.js",
  "libs/engines/src/llama/engine-process.ts",
  "libs/engines/src/llama/engine-thread.ts",
  "libs/parameters/dist/exchange-thread.js",
];

/** Native code. */
const EXTERNAL = /^(onnxruntime-|koffi$|@node-llama-cpp\/)/;
/** What Nest asks for by its name at run time, which must be the bundle's own. */
const LATE = {
  "createRequire(import.meta.url)('@grpc/grpc-js')": "require('@grpc/grpc-js')",
  "createRequire(import.meta.url)(protoLoader)": "require('@grpc/proto-loader')",
};
/** Older bundles are removed; a run that is under way may still read those of another. */
const KEPT_MS = 3_600_000;
/** A file's time and size when it was bundled, by its path. */
const STAMPS = join(BUNDLE_FOLDER, "stamps.json");

/** Bundles what has changed since it was bundled last. */
export default async function bundlePrograms() {
  if (process.env.HEDDLE_TEST_BUNDLES === "off") return;
  if (isCurrent()) return;
  const startedAtMs = performance.now();
  // Where it cannot be done, nothing old may stand for what is there now.
  rmSync(MANIFEST, { force: true });
  const folder = join(BUNDLE_FOLDER, `${Date.now()}-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const { bundles, sources } = await bundleInto(folder);
  const stamps = Object.fromEntries(sources.map((path) => [path, stampOf(path)]));
  writeWhole(STAMPS, stamps);
  writeWhole(MANIFEST, bundles);
  removeOld(folder);
  const seconds = ((performance.now() - startedAtMs) / 1000).toFixed(1);
  process.stderr.write(`heddle: the programs that tests start are bundled (${seconds} s)\n`);
}

async function bundleInto(folder) {
  const names = PROGRAMS.map((path) => [path.replaceAll(/[/.]/g, "-"), join(ROOT, path)]);
  const build = await rolldown({
    input: Object.fromEntries(names),
    platform: "node",
    external: (name) => EXTERNAL.test(name),
    plugins: [inPlace],
    logLevel: "silent",
  });
  const { output } = await build.write({
    ...{ dir: folder, format: "esm", keepNames: true },
    ...{ entryFileNames: "[name].mjs", chunkFileNames: "[name]-[hash].mjs" },
  });
  await build.close();
  const files = new Map(output.map((chunk) => [chunk.name, chunk.isEntry && chunk.fileName]));
  const bundles = names.map(([name, path]) => [path, join(folder, files.get(name))]);
  const read = output.flatMap(({ moduleIds = [] }) => moduleIds).filter((id) => id.startsWith("/"));
  const own = ["bundle-programs.mjs", "use-bundles.mjs"].map((name) =>
    fileURLToPath(new URL(name, import.meta.url)),
  );
  return { bundles: Object.fromEntries(bundles), sources: [...new Set([...read, ...own])] };
}

/** Modules go on to see the place of their own files, and packages that stay outside are found from there. */
const inPlace = {
  name: "in-place",
  resolveId(name, importer) {
    if (!importer || !EXTERNAL.test(name)) return undefined;
    return { id: createRequire(importer).resolve(name), external: true };
  },
  transform(code, id) {
    if (!id.startsWith("/")) return undefined;
    const url = JSON.stringify(pathToFileURL(id).href);
    const paths = `var __filename = ${JSON.stringify(id)}, __dirname = ${JSON.stringify(dirname(id))};`;
    const isCommon = /\b__(dirname|filename)\b/.test(code) && !/^(import|export)\b/m.test(code);
    let moved = code;
    for (const [late, bundled] of Object.entries(LATE)) moved = moved.replaceAll(late, bundled);
    moved = moved.replaceAll("import.meta.url", url);
    return isCommon ? `${paths}${moved}` : moved;
  },
};

function isCurrent() {
  try {
    const stamps = Object.entries(JSON.parse(readFileSync(STAMPS, "utf8")));
    return existsSync(MANIFEST) && stamps.every(([path, stamp]) => stampOf(path) === stamp);
  } catch {
    return false; // Nothing is bundled yet, or a file is gone.
  }
}

function stampOf(path) {
  const { mtimeMs, size } = statSync(path);
  return `${mtimeMs} ${size}`;
}

/** Never seen half written. */
function writeWhole(path, value) {
  const written = `${path}-${process.pid}`;
  writeFileSync(written, JSON.stringify(value));
  renameSync(written, path);
}

function removeOld(newest) {
  for (const name of readdirSync(BUNDLE_FOLDER)) {
    const age = Date.now() - Number(/^(\d+)-\d+$/.exec(name)?.[1]);
    if (name !== basename(newest) && age > KEPT_MS) {
      rmSync(join(BUNDLE_FOLDER, name), { recursive: true });
    }
  }
}
