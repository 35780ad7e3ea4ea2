import { execFile } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { findNativeLibrary, LIBRARY_RELEASE } from "@heddle/engines/llama/native/native-library";
import { benchFolder } from "../../support/command-line.ts";

const run = promisify(execFile);
/** Holds the source of the libraries that the engine uses, as a bundle of git. */
const SOURCE_PACKAGE = `node-llama-cpp@${LIBRARY_RELEASE}`;
const NAME = "libggml-rpc.so";
const FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-DNDEBUG"];
const DEFINES = ["BACKEND_DL", "BACKEND_BUILD", "BACKEND_SHARED", "SHARED"];
const SOURCES = ["ggml-rpc.cpp", "transport.cpp"];

/**
 * A directory with the engine's own libraries and ggml's RPC backend, which their package lacks: it is
 * built once from the same source. Rejects where a tool or the package cannot be had.
 */
export async function rpcLibraries(): Promise<string> {
  const { directory } = findNativeLibrary("cpu");
  const folder = join(benchFolder, "ggml-rpc", LIBRARY_RELEASE);
  const built = join(folder, "libraries");
  if (existsSync(join(built, NAME))) return built;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(built, { recursive: true });
  for (const file of readdirSync(directory)) symlinkSync(join(directory, file), join(built, file));
  const { stdout } = await run("npm", ["pack", "--silent", SOURCE_PACKAGE], { cwd: folder });
  await run("tar", ["-xzf", stdout.trim(), "package/llama/gitRelease.bundle"], { cwd: folder });
  const source = join(folder, "source");
  await run("git", ["clone", "-q", join(folder, "package/llama/gitRelease.bundle"), source]);
  const made = join(folder, NAME);
  await run(
    "g++",
    [
      ...FLAGS,
      ...DEFINES.map((name) => `-DGGML_${name}`),
      ...["include", "src"].map((part) => `-I${join(source, "ggml", part)}`),
      ...SOURCES.map((file) => join(source, "ggml/src/ggml-rpc", file)),
      "-o",
      made,
      `-L${directory}`,
      "-l:libggml-base.so",
    ],
    { maxBuffer: 2 ** 26 },
  );
  copyFileSync(made, join(built, NAME));
  return built;
}
