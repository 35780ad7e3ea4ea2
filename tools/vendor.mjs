import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { rolldown } from "rolldown";

/** Modules with native parts, by the beginnings of their names: packages of their own. */
export const EXTERNAL = ["koffi", "onnxruntime-node", "@node-llama-cpp/", "@tensorflow/"];

/** The file of a bundled module. */
export const fileOf = (module) => `${module.replace("@", "").replaceAll("/", "-")}.js`;

/**
 * Bundles modules into a folder: a file for each that exports the given names, and what they share. With
 * them the licenses of all packages of which anything is in there.
 */
export async function writeVendor(root, folder, imports) {
  const bundle = await rolldown({
    cwd: root,
    input: Object.fromEntries(
      Object.keys(imports).map((module) => [fileOf(module).slice(0, -3), `entry:${module}`]),
    ),
    platform: "node",
    external: EXTERNAL.map((name) => new RegExp(`^${name}`)),
    plugins: [entries(imports)],
    // Nest names packages that are loaded only where they are used and installed.
    logLevel: "silent",
  });
  const own = `${folder}.${process.pid}`;
  const { output } = await bundle.write({
    dir: own,
    entryFileNames: "[name].js",
    chunkFileNames: "shared-[name]-[hash].js",
    // Class names are in messages, and what patches globals, as reflect-metadata does, comes first.
    keepNames: true,
    strictExecutionOrder: true,
  });
  await bundle.close();
  const modules = output.flatMap(({ moduleIds }) => moduleIds ?? []);
  writeFileSync(join(own, "LICENSES.txt"), licensesOf(modules));
  rmSync(folder, { recursive: true, force: true });
  renameSync(own, folder);
}

/** Each entry takes its names from its module. */
function entries(imports) {
  const prefix = "\0entry:";
  return {
    name: "entries",
    resolveId: (id) => (id.startsWith("entry:") ? `\0${id}` : undefined),
    load(id) {
      if (!id.startsWith(prefix)) return undefined;
      const module = JSON.stringify(id.slice(prefix.length));
      const names = imports[id.slice(prefix.length)].join(", ");
      return `import ${module};\nexport { ${names} } from ${module};`;
    },
  };
}

/** The license texts of the packages that the modules are of. */
function licensesOf(modules) {
  const folders = modules.map((path) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]);
  const texts = [...new Set(folders)].filter((folder) => folder !== undefined).map(licenseOf);
  return texts.sort().join("\n");
}

function licenseOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((each) => /^(licen[cs]e|copying)/i.test(each));
  const text = file === undefined ? "" : readFileSync(join(folder, file), "utf8");
  return `${name} ${version} (${license})\n\n${text}\n`;
}
