import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** The module of an import or an export, or of a type `import("module")`. */
const IMPORTED = /(^(?:import|export)\b[^"'\n]*\bfrom\s*["']|\bimport\(["'])([^"']+)/gm;

/**
 * The declarations of modules with those of all that they import, for a package that depends on no other:
 * texts by their paths in it. `entries` are files from `root`; `placeOf` says where a file is in the package.
 */
export function declarationsOf(root, entries, placeOf = placeOfTypes) {
  const texts = new Map();
  const waiting = [...entries];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    const importer = path;
    const place = placeOf(importer);
    if (texts.has(place)) continue;
    const text = readFileSync(join(root, importer), "utf8").replace(IMPORTED, (all, head, name) => {
      if (name.startsWith("node:")) return all;
      const imported = fileOf(name, importer);
      waiting.push(imported);
      return head + specifierOf(relative(dirname(place), placeOf(imported)));
    });
    texts.set(place, text);
  }
  return texts;
}

/** In the package, the folder `types` has one of each library. */
export function placeOfTypes(path) {
  return path.replace(/^libs\/([\w-]+)\/dist\//, "types/$1/").replace(/^node_modules\//, "types/");
}

/** The file of a module that another one imports, from the root. */
function fileOf(name, importer) {
  if (name.startsWith(".")) return declared(join(dirname(importer), name));
  const [, lib, path] = /^@heddle\/([\w-]+)\/(.+)$/.exec(name) ?? [];
  if (lib !== undefined) return `libs/${lib}/dist/${path}.d.ts`;
  if (name === "zod") return "node_modules/zod/index.d.ts";
  throw new Error(`${importer} imports ${name}, whose declarations have no place in a package`);
}

const declared = (path) => path.replaceAll("\\", "/").replace(/\.[jt]s$/, ".d.ts");

function specifierOf(path) {
  const name = path.replaceAll("\\", "/").replace(/\.d\.ts$/, ".js");
  return name.startsWith(".") ? name : `./${name}`;
}
