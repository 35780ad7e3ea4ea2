import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join } from "node:path";
import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { compileCpp, engineSource } from "../support/engine-source.ts";

const INCLUDES = [
  "include",
  "common",
  "ggml/include",
  "tools/mtmd",
  "tools/server",
  "vendor",
  "vendor/hash",
  "vendor/miniaudio",
  "vendor/stb",
];
const SOURCES = [
  "tools/server",
  "tools/mtmd",
  "tools/mtmd/models",
  "vendor/hash",
  "vendor/hash/sha256",
];
/** Programs of their own. */
const LEFT_OUT = ["mtmd-cli.cpp", "deprecation-warning.cpp"];

/** In place of the header that the source's own build makes of its web page's files. */
const NO_PAGE = `#pragma once
#include <cstddef>
#include <string>
#include <vector>
struct llama_ui_asset { std::string name; const unsigned char * data; size_t size; std::string type; };
inline std::vector<llama_ui_asset> llama_ui_get_assets() { return {}; }
`;

/**
 * The path of llama-server, linked with the very libraries that the engine loads, so that both sides
 * compute alike. It is built once (minutes). Rejects where a tool or the source cannot be had.
 */
export async function llamaServerProgram(): Promise<string> {
  const { source, libraries } = await engineSource();
  const program = join(libraries, "llama-server");
  if (existsSync(program)) return program;
  console.log("llama-server is built from the engine's own source; that takes minutes ...");
  const objects = join(libraries, "../llama-server-objects");
  rmSync(objects, { recursive: true, force: true });
  mkdirSync(objects);
  writeFileSync(join(objects, "ui.h"), NO_PAGE);
  const flags = [
    "-DLLAMA_SHARED",
    "-DGGML_SHARED",
    "-DLLAMA_SUBPROCESS",
    `-I${objects}`,
    ...INCLUDES.map((folder) => `-I${join(source, folder)}`),
  ];
  const files = SOURCES.flatMap((folder) =>
    readdirSync(join(source, folder))
      .filter((file) => /\.c(?:pp)?$/.test(file) && !LEFT_OUT.includes(file))
      .map((file) => join(source, folder, file)),
  );
  const objectOf = (file: string) => join(objects, `${basename(file)}.o`);
  await forEachLimit(files, availableParallelism(), (file) =>
    compileCpp([
      "-w",
      ...flags,
      "-x",
      file.endsWith(".c") ? "c" : "c++",
      "-c",
      file,
      "-o",
      objectOf(file),
    ]),
  );
  const libs = readdirSync(libraries).filter((file) =>
    /^lib(?:llama|ggml)(?!-(?:cpu|rpc)).*\.so$/.test(file),
  );
  const partial = `${program}.partial`;
  await compileCpp([
    ...files.map(objectOf),
    "-o",
    partial,
    `-L${libraries}`,
    ...libs.map((file) => `-l:${file}`),
    "-pthread",
    "-Wl,-rpath,$ORIGIN",
  ]);
  renameSync(partial, program);
  return program;
}
