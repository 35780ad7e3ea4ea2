import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import {
  chmod,
  copyFile,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const main = fileURLToPath(new URL(`./program/runner-main${extension}`, import.meta.url));

/** Libraries that Node itself needs, in whatever folder. */
const LIBRARY = /^(lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s|atomic)[.-]|ld-)/;
/** Beside the C library: what an older one needs to look up names. */
const LOOKUP = ["libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"];
const LOADER = /^ld-(linux|musl)/;

/** What a runner is started with, whatever its image or node has. */
export interface RunnerFiles {
  /** Runners see it under the same name. */
  readonly folder: string;
  readonly command: readonly string[];
}

/**
 * Copies Node, the libraries that it needs, their loader, and the runner into a folder of the
 * data directory, once for each version. An image needs neither a shell nor a C library for them.
 */
export async function installRunner(parent: string): Promise<RunnerFiles> {
  const { loader, libraries } = loadedLibraries();
  const modules = await modulesOf(main);
  const hash = createHash("sha256").update(`${process.version} ${process.execPath}`);
  for (const path of [...libraries, process.execPath]) {
    const { size, mtimeMs } = await stat(path);
    hash.update(`${path} ${size} ${mtimeMs}`);
  }
  for (const path of modules.keys()) hash.update(await readFile(path));
  const folder = join(parent, `runner-${hash.digest("hex").slice(0, 16)}`);
  const home = commonFolder([...modules.keys()]);
  const files = [
    [process.execPath, "bin/node"],
    ...libraries.map((path) => [path, `lib/${basename(path)}`]),
    ...[...modules.keys()].map((path) => [path, `program${path.slice(home.length)}`]),
  ] as [string, string][];
  await place(folder, files);
  const inside = (name: string) => join(folder, name);
  return {
    folder,
    command: [
      inside(`lib/${basename(loader)}`),
      "--library-path",
      inside("lib"),
      inside("bin/node"),
      "--max-old-space-size=64",
      inside(`program${main.slice(home.length)}`),
    ],
  };
}

/** Removes those of earlier versions, which no runner must be using. */
export async function removeOlderRunners({ folder }: RunnerFiles): Promise<void> {
  const parent = dirname(folder);
  for (const name of await readdir(parent)) {
    if (!name.startsWith("runner-") || name === basename(folder)) continue;
    await rm(join(parent, name), { recursive: true, force: true });
  }
}

/** Complete or not there: another process of the worker may have been killed meanwhile. */
async function place(folder: string, files: readonly [string, string][]): Promise<void> {
  if (await stat(folder).catch(() => undefined)) return;
  const draft = `${folder}.new`;
  await rm(draft, { recursive: true, force: true });
  for (const [from, to] of files) {
    const target = join(draft, to);
    await mkdir(dirname(target), { recursive: true, mode: 0o755 });
    await copyFile(from, target);
    await chmod(target, /^(bin|lib)\//.test(to) ? 0o755 : 0o644);
  }
  await writeFile(join(draft, "program", "package.json"), '{"type": "module"}\n', { mode: 0o644 });
  await rename(draft, folder);
}

function loadedLibraries(): { readonly loader: string; readonly libraries: readonly string[] } {
  const maps = readFileSync("/proc/self/maps", "utf8");
  const paths = new Set(maps.match(/(?<=\s)\/\S+$/gm) ?? []);
  const libraries = [...paths].filter((path) => LIBRARY.test(basename(path))).sort();
  const home = dirname(libraries.find((path) => basename(path).startsWith("libc.")) ?? "/");
  libraries.push(...LOOKUP.map((name) => join(home, name)).filter((path) => existsSync(path)));
  const loader = libraries.find((path) => LOADER.test(basename(path)));
  if (loader === undefined)
    throw new Error("Node's loader is not in /proc/self/maps: it is no Linux");
  return { loader, libraries };
}

/** The module and all that it imports from beside it. */
async function modulesOf(
  path: string,
  found = new Map<string, true>(),
): Promise<Map<string, true>> {
  if (found.has(path)) return found;
  found.set(path, true);
  const text = await readFile(path, "utf8");
  for (const [, name = ""] of text.matchAll(/^(?:import|export)\b[^"']*["'](\.[^"']+)["']/gm)) {
    await modulesOf(resolve(dirname(path), name), found);
  }
  return found;
}

function commonFolder(paths: readonly string[]): string {
  let folder = dirname(paths[0] ?? "/");
  while (!paths.every((path) => path.startsWith(`${folder}/`))) folder = dirname(folder);
  return folder;
}
