import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { startLlamaEngine } from "@heddle/engines/llama/llama-engine";
import { pullWeights } from "@heddle/engines/weights/pull-weights";
import type { EnginePorts } from "./engine-ports.ts";

export interface LlamaPortsOptions {
  /** Where weights are kept between starts. */
  readonly cacheDirectory: string;
  /** Hosts besides the Hugging Face hub's that weights may come from. */
  readonly allowedHosts: readonly string[];
}

/** The engines that workers run: llama.cpp in a process per model, on weights from the cache. */
export function llamaPorts({ cacheDirectory, allowedHosts }: LlamaPortsOptions): EnginePorts {
  return {
    startEngine: async ({ spec, modelPath, ...start }) => {
      // Read by us first: a damaged file gets a reason here, and the native reader never sees it.
      await readGguf(modelPath);
      return startLlamaEngine({ ...start, modelPath, options: spec.options });
    },
    pullWeights: (weights, { signal, onProgress }) =>
      pullWeights(weights, {
        cacheDirectory,
        allowedHosts,
        signal,
        onProgress: (pulledBytes, totalBytes, source) =>
          onProgress({ pulledBytes, totalBytes, source }),
      }),
  };
}
