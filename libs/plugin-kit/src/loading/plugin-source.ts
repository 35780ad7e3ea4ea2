import { createHash } from "node:crypto";
import {
  existsSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  statSync,
} from "node:fs";
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";

const PROGRAMS = fileURLToPath(new URL("../../../..", import.meta.url)).replace(/\/$/, "");
/** The folder of the package `heddle` that this file is part of. */
const HEDDLE = basename(PROGRAMS) === "packaged" ? dirname(PROGRAMS) : PROGRAMS;
const HEDDLE_PROGRAMS = join(HEDDLE, "bin");
const MAX_FILES = 20_000;
const MAX_BYTES = 268_435_456;
/** Modules beside a plugin of one file that it may import. */
const MAX_BESIDE = 256;

/** Where a plugin's code is. */
export interface PluginSource {
  /** The module with the plugin as its default export. */
  readonly file: string;
  /** The folder of its package, or the file alone. */
  readonly root: string;
  /** The digest of all its files: `sha256:` and hexadecimal digits. */
  readonly digest: string;
  /** The digest of each file by its path. */
  readonly files: ReadonlyMap<string, string>;
}

/** Finds a plugin's code and reads its digest. Throws with what is missing. */
export function findSource(entry: PluginEntry): PluginSource {
  const { root, isFile } = findRoot(entry);
  if (isFile) {
    const digest = fileDigest(readFileSync(root));
    return { file: root, root, digest: `sha256:${digest}`, files: new Map([[root, digest]]) };
  }
  const files = filesOf(root);
  const file = realpathSync(entryOf(root));
  const hash = createHash("sha256");
  for (const [path, digest] of files) {
    hash.update(`${relative(root, path).replaceAll(sep, "/")}\0${digest}\n`);
  }
  return { file, root, digest: `sha256:${hash.digest("hex")}`, files };
}

function findRoot({ from, base = process.cwd() }: PluginEntry) {
  const place = isAbsolute(from) ? from : packageFolder(from, base);
  const stat = statSync(place, { throwIfNoEntry: false });
  if (!stat) throw new Error(`there is no file or folder ${place}`);
  return { root: realpathSync(place), isFile: stat.isFile() };
}

/** A plugin's folder, and the folders of packages in and above it. None of its files is read. */
export function codeFolders(entry: PluginEntry): string[] {
  const { root, isFile } = findRoot(entry);
  const own = isFile ? dirname(root) : root;
  return [own, ...packagesOf(own)];
}

/**
 * What a plugin's own process reads of its code: as above, but of a plugin of one file it and the modules
 * beside it. Other files beside it are not its own: the folder may be a user's home.
 */
export function ownCodePaths(entry: PluginEntry): string[] {
  const { root, isFile } = findRoot(entry);
  if (!isFile) return codeFolders(entry);
  return [root, ...modulesBeside(root), ...packagesOf(dirname(root))];
}

function packagesOf(own: string): string[] {
  const paths: string[] = [];
  for (let folder = own; folder !== dirname(folder); folder = dirname(folder)) {
    const packages = join(folder, "node_modules");
    if (existsSync(packages)) paths.push(packages);
    const manifest = join(folder, "package.json");
    if (existsSync(manifest)) paths.push(manifest);
  }
  return paths;
}

function modulesBeside(file: string): string[] {
  const folder = dirname(file);
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.[cm]?[jt]s$/.test(entry.name))
    .map(({ name }) => join(folder, name))
    .filter((path) => path !== file)
    .slice(0, MAX_BESIDE);
}

function packageFolder(name: string, base: string): string {
  for (let folder = base; ; folder = dirname(folder)) {
    const found = join(folder, "node_modules", name);
    if (existsSync(join(found, "package.json"))) return found;
    if (folder === dirname(folder)) break;
  }
  throw new Error(
    `there is no file ${join(base, name)} and no package ${name} in node_modules of ${base} or above: give a path, or install the package there`,
  );
}

interface Manifest {
  readonly exports?: unknown;
  readonly main?: unknown;
}

/** The module that a package's folder exports. */
function entryOf(folder: string): string {
  const file = join(folder, "package.json");
  const manifest = existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Manifest) : {};
  const given = exported(manifest.exports) ?? manifest.main;
  const names = typeof given === "string" ? [given] : ["index.js", "index.mjs", "index.ts"];
  const paths = names.map((name) => join(folder, name));
  const outside = paths.find((path) => !isWithin(folder, path));
  if (outside !== undefined) {
    throw new Error(`its package.json exports ${outside}, which is not in ${folder}`);
  }
  const found = paths.find((path) => existsSync(path));
  if (found !== undefined) return found;
  throw new Error(
    `the folder ${folder} has no module ${names.join(", ")}: name it in \`exports\` of its package.json`,
  );
}

function exported(exports: unknown): string | undefined {
  if (typeof exports === "string") return exports;
  if (typeof exports !== "object" || exports === null) return undefined;
  const {
    ".": main,
    import: imported,
    node,
    default: fallback,
  } = exports as Record<string, unknown>;
  for (const each of [main, imported, node, fallback]) {
    const found = exported(each);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Keyed by path, ordered by name. Links count by what they name, and none leads out of the folder. */
function filesOf(root: string): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  let bytes = 0;
  const visit = (folder: string): void => {
    const names = readdirSync(folder, { withFileTypes: true });
    for (const entry of names.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(folder, entry.name);
      if (entry.isSymbolicLink()) {
        checkLink(root, path);
        files.set(path, fileDigest(Buffer.from(readlinkSync(path))));
      } else if (entry.name === ".git") continue;
      else if (entry.isDirectory()) visit(path);
      else if (entry.isFile()) {
        bytes += statSync(path).size;
        if (bytes <= MAX_BYTES) files.set(path, fileDigest(readFileSync(path)));
      }
      if (files.size > MAX_FILES || bytes > MAX_BYTES) throw tooLarge(root);
    }
  };
  visit(root);
  return files;
}

/**
 * Throws for a link that leads out of the folder: no digest covers what it leads to, and the plugin's
 * process could read that. Links to this Heddle and its programs, as `npm install` makes, are none of the
 * plugin's files.
 */
function checkLink(root: string, path: string): void {
  const target = targetOf(path);
  if (isWithin(root, target) || target === HEDDLE || dirname(target) === HEDDLE_PROGRAMS) return;
  throw new Error(
    `its link ${path} leads to ${target}, out of ${root}: put what it needs in its place (packages with \`npm install --install-links\`)`,
  );
}

/** Where a link leads; of one that leads nowhere, where it would. */
function targetOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return resolve(dirname(path), readlinkSync(path));
  }
}

function isWithin(folder: string, path: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function tooLarge(root: string): Error {
  const bounds = `${MAX_FILES} files or ${MAX_BYTES / 2 ** 20} MiB`;
  return new Error(`the folder ${root} has more than ${bounds}: bundle the plugin into one file`);
}

/** The digest of one file's bytes, hexadecimal. */
export function fileDigest(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}
