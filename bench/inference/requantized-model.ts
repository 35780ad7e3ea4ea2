import { existsSync, mkdirSync, renameSync } from "node:fs";
import { basename, join } from "node:path";
import { findNativeLibrary } from "@heddle/engines/llama/native/native-library";
import koffi from "koffi";
import { benchFolder } from "../support/command-line.ts";

/** In llama_ftype. */
const FILE_TYPES: Readonly<Record<string, number>> = { q4_0: 2, q4_1: 3, q8_0: 7 };

/** The first members of llama_model_quantize_params; the rest is kept as the library gives it. */
koffi.struct("quantize_params", {
  nthread: "int32_t",
  ftype: "int",
  output_tensor_type: "int",
  token_embedding_type: "int",
  allow_requantize: "bool",
  rest: koffi.array("uint8_t", 127),
});

/** The model's file in another quantization, in the benchmarks' folder; it is made once. */
export function requantizedModel(modelFile: string, quantization: string): string {
  const ftype = FILE_TYPES[quantization];
  if (ftype === undefined) {
    const known = Object.keys(FILE_TYPES).join(", ");
    throw new Error(`no quantization ${quantization}; use one of ${known}`);
  }
  const folder = join(benchFolder, "models");
  const made = join(folder, `${basename(modelFile, ".gguf")}.${quantization}.gguf`);
  if (existsSync(made)) return made;
  mkdirSync(folder, { recursive: true });
  const { directory, ggmlPath, llamaPath } = findNativeLibrary("cpu");
  const [ggml, llama] = [koffi.load(ggmlPath), koffi.load(llamaPath)];
  ggml.func("void ggml_backend_load_all_from_path(const char* dir)")(directory);
  const params = llama.func("quantize_params llama_model_quantize_default_params()")();
  const quantize = llama.func(
    "uint32_t llama_model_quantize(const char* from, const char* to, const quantize_params* params)",
  );
  const wanted = { ...params, nthread: 1, ftype, allow_requantize: true };
  const fault = quantize(modelFile, `${made}.part`, wanted);
  if (fault !== 0) throw new Error(`llama_model_quantize failed with ${fault}`);
  renameSync(`${made}.part`, made);
  return made;
}
