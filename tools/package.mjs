// `npm pack` runs this first: it compiles, and writes what the tarball carries to packaged/. There the
// layout is the repository's, and imports of workspace packages are relative: npm knows none of them.
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { ROOT, setUp } from "./setup.mjs";

const TARGET = join(ROOT, "packaged");
const APPS = ["cli", "master", "parameter-server", "trainer", "worker"];
/** A module of a workspace package as compiled code names it. */
const WORKSPACE_MODULE = /"@heddle\/([a-z-]+)\/([\w./-]+)"/g;

setUp();
rmSync(TARGET, { recursive: true, force: true });
for (const app of APPS) copyPackage(join("apps", app));
for (const lib of readdirSync(join(ROOT, "libs"))) {
  // Only tests use the simulation.
  if (lib !== "simulation") copyPackage(join("libs", lib));
}
cpSync(join(ROOT, "proto"), join(TARGET, "proto"), { recursive: true });

function copyPackage(folder) {
  const files = readdirSync(join(ROOT, folder, "dist"), { recursive: true }).filter(
    (name) => /\.(js|wasm)$/.test(name) && !name.split(/[/\\]/).includes("testing"),
  );
  for (const name of files) copyModule(join(folder, "dist", name));
  const { name, version, license, type } = readJson(join(ROOT, folder, "package.json"));
  const manifest = JSON.stringify({ name, version, license, type, private: true }, null, 2);
  writeFileSync(join(TARGET, folder, "package.json"), `${manifest}\n`);
}

function copyModule(path) {
  mkdirSync(dirname(join(TARGET, path)), { recursive: true });
  if (path.endsWith(".wasm")) {
    cpSync(join(ROOT, path), join(TARGET, path));
    return;
  }
  const text = readFileSync(join(ROOT, path), "utf8").replace(/^\/\/# sourceMappingURL=.*$/gm, "");
  const own = dirname(path);
  const rewritten = text.replace(WORKSPACE_MODULE, (_, lib, module) => {
    const file = relative(own, join("libs", lib, "dist", `${module}.js`)).replaceAll("\\", "/");
    return JSON.stringify(file.startsWith(".") ? file : `./${file}`);
  });
  writeFileSync(join(TARGET, path), rewritten);
}

function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}
