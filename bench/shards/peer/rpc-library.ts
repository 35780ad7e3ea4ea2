import { existsSync, renameSync } from "node:fs";
import { join } from "node:path";
import { compileCpp, engineSource } from "../../support/engine-source.ts";

const NAME = "libggml-rpc.so";
const DEFINES = ["BACKEND_DL", "BACKEND_BUILD", "BACKEND_SHARED", "SHARED"];
const SOURCES = ["ggml-rpc.cpp", "transport.cpp"];

/**
 * A directory with the engine's own libraries and ggml's RPC backend, which their package lacks: it is
 * built once from the same source. Rejects where a tool or the package cannot be had.
 */
export async function rpcLibraries(): Promise<string> {
  const { source, libraries } = await engineSource();
  const built = join(libraries, NAME);
  if (existsSync(built)) return libraries;
  const made = `${built}.partial`;
  await compileCpp([
    "-shared",
    ...DEFINES.map((name) => `-DGGML_${name}`),
    ...["include", "src"].map((part) => `-I${join(source, "ggml", part)}`),
    ...SOURCES.map((file) => join(source, "ggml/src/ggml-rpc", file)),
    "-o",
    made,
    `-L${libraries}`,
    "-l:libggml-base.so",
  ]);
  renameSync(made, built);
  return libraries;
}
