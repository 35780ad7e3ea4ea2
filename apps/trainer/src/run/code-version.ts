import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The code that affects a trainer's results; bundled programs have what they share in `chunks`. */
const FOLDERS = [
  "apps/trainer/dist",
  "libs/backends/dist",
  "libs/base/dist",
  "libs/contracts/dist",
  "libs/parameters/dist",
  "libs/training/dist",
  "chunks",
] as const;
const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const DIGEST_CHARACTERS = 16;

/**
 * Identifies a trainer's code: the release, and a digest of its own files and its plugins', as
 * `0.1.0+3f2a...` (semver's build metadata).
 */
export function codeVersion(release: string, plugins: readonly string[]): string {
  const paths = FOLDERS.map((name) => join(ROOT, name)).filter((path) => existsSync(path));
  return `${release}+${codeDigest(paths, plugins).slice(0, DIGEST_CHARACTERS)}`;
}

/** SHA-256, hexadecimal, of all programs in the folders and of the files, with their names. */
export function codeDigest(folders: readonly string[], files: readonly string[]): string {
  const hash = createHash("sha256");
  for (const folder of folders) {
    const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(isProgram);
    for (const name of names.sort()) hash.update(`${name}\0`).update(contentOf(join(folder, name)));
  }
  for (const file of files) hash.update(contentOf(file));
  return hash.digest("hex");
}

/** With its length first, so that different sets of files have different digests. */
function contentOf(path: string): Buffer {
  const bytes = readFileSync(path);
  return Buffer.concat([Buffer.from(`${bytes.length}\0`), bytes]);
}

function isProgram(name: string): boolean {
  const isCode = [".js", ".ts", ".mjs", ".wasm"].includes(extname(name));
  return isCode && !/\.(test|d)\.[jt]s$/.test(name);
}
