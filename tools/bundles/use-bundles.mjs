// Loaded into every process and thread of a test run (`node --import`): where one is a program that
// bundle-programs.mjs has bundled, Node reads the bundle in place of the file, whose name it keeps.
import { readFileSync } from "node:fs";
import nodeModule from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

export const BUNDLE_FOLDER = fileURLToPath(
  new URL("../../node_modules/.cache/heddle-bundles/", import.meta.url),
);
/** The path of each program's bundle, by the program's own. */
export const MANIFEST = `${BUNDLE_FOLDER}manifest.json`;

const [, program = ""] = process.argv;
const bundle = bundles()[program];
// A Node older than 22.15 has no such hooks, and reads the files.
if (bundle && nodeModule.registerHooks) {
  const [from, url] = [program, bundle].map((path) => pathToFileURL(path).href);
  nodeModule.registerHooks({
    resolve: (specifier, context, next) =>
      specifier === from ? { url, format: "module", shortCircuit: true } : next(specifier, context),
  });
}

function bundles() {
  try {
    return JSON.parse(readFileSync(MANIFEST, "utf8"));
  } catch {
    return {}; // Nothing is bundled: the files themselves are read.
  }
}
