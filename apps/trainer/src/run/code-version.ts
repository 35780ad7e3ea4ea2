import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A module of each package that affects a trainer's results; the whole package counts. */
const PACKAGES = [
  "@heddle/backends/onnx-backend",
  "@heddle/base/errors",
  "@heddle/contracts/training",
  "@heddle/parameters/thread-calls",
  "@heddle/training/backend",
] as const;
/** In the root folder of the trainer. */
const OWN = new URL("../main", import.meta.url).href;
const DIGEST_CHARACTERS = 16;

/**
 * Identifies a trainer's code: the release, and a digest of its own files and its plugins', as
 * `0.1.0+3f2a...` (semver's build metadata).
 */
export function codeVersion(release: string, plugins: readonly string[]): string {
  const folders = [OWN, ...PACKAGES.map((name) => import.meta.resolve(name))];
  const paths = folders.map((url) => dirname(fileURLToPath(url)));
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
