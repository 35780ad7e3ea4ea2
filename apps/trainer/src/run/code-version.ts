import { createHash, type Hash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The code that affects a trainer's results. */
const FOLDERS = [
  "apps/trainer/dist",
  "libs/backends/dist",
  "libs/base/dist",
  "libs/contracts/dist",
  "libs/parameters/dist",
  "libs/training/dist",
] as const;
/** What bundled programs share. Each name holds a hash of the content. */
const CHUNKS = "chunks";
const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const DIGEST_CHARACTERS = 16;

/**
 * Identifies a trainer's code: the release, and a digest of its own files and its plugins', as
 * `0.1.0+3f2a...` (semver's build metadata).
 */
export function codeVersion(release: string, plugins: readonly string[]): string {
  const paths = FOLDERS.map((name) => join(ROOT, name)).filter((path) => existsSync(path));
  const digest = codeDigest(paths, plugins, chunkNames(join(ROOT, CHUNKS)));
  return `${release}+${digest.slice(0, DIGEST_CHARACTERS)}`;
}

function chunkNames(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder).filter(isProgram).sort() : [];
}

/** SHA-256, hexadecimal, of all programs in the folders, of the files, and of the names. */
export function codeDigest(
  folders: readonly string[],
  files: readonly string[],
  names: readonly string[] = [],
): string {
  const hash = createHash("sha256").update(`${names.join("\0")}\0`);
  for (const folder of folders) {
    const programs = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(isProgram);
    for (const name of programs.sort()) {
      hash.update(`${name}\0`);
      addContent(hash, join(folder, name));
    }
  }
  for (const file of files) addContent(hash, file);
  return hash.digest("hex");
}

/** With its length first, so that different sets of files have different digests. */
function addContent(hash: Hash, path: string): void {
  const bytes = readFileSync(path);
  hash.update(`${bytes.length}\0`).update(bytes);
}

function isProgram(name: string): boolean {
  const isCode = [".js", ".ts", ".mjs", ".wasm"].includes(extname(name));
  return isCode && !/\.(test|d)\.[jt]s$/.test(name);
}
