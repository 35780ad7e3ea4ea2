import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { findNativeLibrary, LIBRARY_RELEASE } from "@heddle/engines/llama/native/native-library";
import { benchFolder } from "./command-line.ts";

/** Holds the source of the libraries that the engine uses, as a bundle of git. */
const SOURCE_PACKAGE = `node-llama-cpp@${LIBRARY_RELEASE}`;
const BUNDLE = "package/llama/gitRelease.bundle";

const run = promisify(execFile);

/** The engine's own libraries and their source, from which their package's missing parts are built. */
export interface EngineSource {
  readonly source: string;
  /** Links to the engine's libraries; what is built goes beside them. */
  readonly libraries: string;
}

/** Fetched once. Rejects where npm, git or the package cannot be had. */
export async function engineSource(): Promise<EngineSource> {
  const folder = join(benchFolder, "engine-source", LIBRARY_RELEASE);
  const source = join(folder, "source");
  const libraries = join(folder, "libraries");
  if (existsSync(libraries)) return { source, libraries };
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const { stdout } = await run("npm", ["pack", "--silent", SOURCE_PACKAGE], { cwd: folder });
  await run("tar", ["-xzf", stdout.trim(), BUNDLE], { cwd: folder });
  await run("git", ["clone", "-q", join(folder, BUNDLE), source]);
  const { directory } = findNativeLibrary("cpu");
  mkdirSync(libraries);
  for (const file of readdirSync(directory)) {
    symlinkSync(join(directory, file), join(libraries, file));
  }
  return { source, libraries };
}

/** Compiles and links, or rejects with what the compiler wrote. */
export async function compileCpp(args: readonly string[]): Promise<void> {
  await run("g++", ["-std=c++17", "-O2", "-fPIC", "-DNDEBUG", ...args], { maxBuffer: 2 ** 26 });
}
