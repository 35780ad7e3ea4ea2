import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { rolldown } from "rolldown";

/** Modules with native parts, by the beginnings of their names: packages of their own. */
export const EXTERNAL = [
  "koffi",
  "onnxruntime-node",
  "@node-llama-cpp/",
  "@tensorflow/",
  "@energetic-ai/",
];

/** A compiled module of the workspace, by its path from the root. */
const COMPILED = /^(?:apps|libs)\/[^/]+\/dist\/.*\.js$/;
/** For an ES import of it Node loads its client of WebSockets too, 35 ms of a start; not for `require`. */
const HTTP = "http";
/** Main modules that import at once, and not by the command that is given. */
const ROOTS = /\/apps\/(master|trainer|parameter-server)\/dist\/main\.js$/;
/** In the code of a bundle, the folder where its modules believe to be. */
const HOME = "@home/";

/**
 * Bundles programs, given by their paths from the root, and what they share. The programs keep their paths in
 * the result, a list of files with their code for the folder `target`. To the code a module is where it
 * would be below `home`. Both are absolute paths.
 */
export async function bundlePrograms(root, programs, target, home = target) {
  const shares = sharedChunks(programs.map((path) => join(root, path)));
  const bundle = await rolldown({
    cwd: root,
    input: Object.fromEntries(programs.map((path) => [path.replace(/\.[jt]s$/, ""), `./${path}`])),
    platform: "node",
    external: EXTERNAL.map((name) => new RegExp(`^${name}`)),
    plugins: [compiled(root), places(root, target, home), required(HTTP), shares.plugin],
    // Nest names packages that are loaded only where they are used and installed.
    logLevel: "silent",
  });
  const { output } = await bundle.generate({
    entryFileNames: "[name].js",
    chunkFileNames: "chunks/[name]-[hash].js",
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [{ name: shares.nameOf }],
    },
    // Class names are in messages, and what patches globals, as reflect-metadata does, comes first.
    keepNames: true,
    strictExecutionOrder: true,
  });
  await bundle.close();
  return {
    files: output.map(({ fileName, code }) => ({ path: fileName, code })),
    modules: output.flatMap(({ moduleIds }) => moduleIds ?? []),
  };
}

/** A program of tests may import a source file: then its compiled module is meant, as elsewhere. */
function compiled(root) {
  return {
    name: "compiled",
    resolveId(id, importer) {
      if (!importer || !/^\.\.?\/.*\.ts$/.test(id)) return null;
      const path = relative(root, join(dirname(importer), id));
      const own = /^((?:apps|libs)\/[^/]+)\/src\/(.+)\.ts$/.exec(path);
      return own ? join(root, own[1], "dist", `${own[2]}.js`) : null;
    },
  };
}

/** Keeps `import.meta.url` of the workspace's modules what it would be if they were not bundled. */
function places(root, target, home) {
  return {
    name: "places",
    transform(code, id) {
      if (!code.includes("import.meta.url")) return null;
      const path = relative(root, id).replaceAll("\\", "/");
      if (!COMPILED.test(path)) return null;
      const own = `new URL(${JSON.stringify(HOME + path)}, import.meta.url).href`;
      return code.replaceAll("import.meta.url", own);
    },
    renderChunk(code, { fileName }) {
      const up = relative(dirname(join(target, fileName)), home).replaceAll("\\", "/");
      return code.replaceAll(`"${HOME}`, `"${up}/`);
    },
  };
}

/**
 * One chunk for all that the same programs load at their start; `entries` are the programs'
 * modules. By default each command of the command line would count too, and a master would read 80
 * files.
 */
function sharedChunks(entries) {
  const names = new Map();
  const nameOf = (id) => names.get(id) ?? null;
  const plugin = {
    name: "shared-chunks",
    buildEnd() {
      const programs = new Map();
      const add = (id, program, seen = new Set()) => {
        const module = seen.has(id) ? null : this.getModuleInfo(id);
        seen.add(id);
        if (!module || module.isExternal) return;
        programs.set(id, (programs.get(id) ?? new Set()).add(program));
        for (const each of module.importedIds) add(each, program, seen);
      };
      for (const entry of entries) {
        const { dynamicallyImportedIds } = this.getModuleInfo(entry);
        // A program's main module imports what most of its starts need.
        const late = ROOTS.test(entry) ? dynamicallyImportedIds : [];
        for (const id of [entry, ...late]) add(id, entry);
      }
      const groups = new Map();
      for (const [id, own] of programs) {
        // What one program alone loads is in its own chunk, but for a root, whose file is small.
        const isShared = own.size > 1 || ROOTS.test([...own][0]);
        if (!isShared || entries.includes(id)) continue;
        const key = [...own].join();
        if (!groups.has(key)) groups.set(key, `shared-${groups.size + 1}`);
        names.set(id, groups.get(key));
      }
    },
  };
  return { nameOf, plugin };
}

/** Has a module of Node's required in place of imported. */
function required(name) {
  const id = `\0${name}.cjs`;
  return {
    name: "required",
    resolveId: (asked) => (asked === name || asked === `node:${name}` ? id : null),
    load(asked) {
      if (asked !== id) return null;
      return `module.exports = process.getBuiltinModule(${JSON.stringify(`node:${name}`)});`;
    },
  };
}

/** The license texts of the packages that the modules are of. */
export function licensesOf(modules) {
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
