import { dirname, relative } from "node:path";
import { AppError } from "@heddle/base/errors";
import { type GgufFile, readGguf } from "@heddle/engines/gguf/gguf-reader";
import { startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { ChatTemplate } from "@heddle/engines/text/chat-template";
import { reasoningStyleOf } from "@heddle/engines/text/reasoning-style";
import { type PullOptions, pullWeights } from "@heddle/engines/weights/pull-weights";
import type { PullAccess } from "../artifacts/object-source.ts";
import type { EnginePorts, PullHow, WorkerEngine } from "./engine-ports.ts";
import { stagePorts } from "./stages/stage-ports.ts";

export interface LlamaPortsOptions extends Partial<PullAccess> {
  /** The cache of weights. */
  readonly cacheDirectory: string;
}

/** The engines of workers: llama.cpp in a process for each model, with weights from the cache. */
export function llamaPorts({
  cacheDirectory,
  allowedHosts,
  readObject,
}: LlamaPortsOptions): EnginePorts {
  const optionsOf = ({ signal, onProgress, readArtifact }: PullHow): PullOptions => ({
    cacheDirectory,
    ...(allowedHosts && { allowedHosts }),
    signal,
    readers: { artifact: readArtifact, object: readObject },
    onProgress: (pulledBytes, totalBytes, source) =>
      onProgress({ pulledBytes, totalBytes, source }),
  });
  return {
    startEngine: async ({ spec, modelPath, ...start }) => {
      if (modelPath === undefined) {
        throw new AppError("invalid_value", `${spec.key} names no weights, which libllama needs`);
      }
      // We read the file first: a damaged file gets a reason here, and never reaches the native
      // reader.
      const isCached = !relative(cacheDirectory, modelPath).startsWith("..");
      const { metadata } = await readWeights(modelPath, isCached);
      const template = templateOf(spec.options.chatTemplate, metadata);
      // The engine would check it last, after minutes where the file is large.
      checkTemplate(template);
      if (spec.engine === "llama" && spec.stage) {
        // Loaded only now: few workers have one.
        const { startStagedEngine } = await import("./stages/staged-engine.ts");
        const { stage } = spec;
        const engine = await startStagedEngine({ ...spec, stage }, modelPath, start);
        return withReasoning(engine, template);
      }
      const launch = start.launchWith?.(weightFolders(cacheDirectory, modelPath, isCached));
      const engine = await startLlamaEngine({
        ...start,
        modelPath,
        options: spec.options,
        split: spec.engine === "llama" ? spec.split : undefined,
        onRestart: start.onDown,
        ...(launch && { child: { launch } }),
      });
      return withReasoning(engine, template);
    },
    stages: stagePorts(cacheDirectory, optionsOf),
    pullWeights: async (weights, pull) => {
      if (!pull.stage) return pullWeights(weights, optionsOf(pull));
      const { stageWeights } = await import("@heddle/engines/shards/weights/stage-weights");
      const { peers, onFault } = pull;
      const faults = onFault && { onFault };
      return stageWeights(weights, pull.stage, { ...optionsOf(pull), peers, ...faults });
    },
  };
}

/** What its process reads: weights that lie elsewhere, and those of adapters in the cache. */
function weightFolders(cache: string, modelPath: string, isCached: boolean): readonly string[] {
  return isCached ? [cache] : [cache, dirname(modelPath)];
}

/** The option's template or the file's; blank where there is neither. */
function templateOf(option: string | undefined, metadata: GgufFile["metadata"]): string {
  if (option !== undefined && option.trim() !== "") return option;
  const entry = metadata.get("tokenizer.chat_template");
  return entry?.type === "string" ? entry.value : "";
}

/** Throws `invalid_value` on a template that is invalid jinja. */
function checkTemplate(template: string): void {
  new ChatTemplate(template, { bos: "", eos: "" });
}

/**
 * A cached file can be pulled again; any other file belongs to its owner, perhaps as the only copy.
 */
async function readWeights(path: string, isCached: boolean): Promise<GgufFile> {
  try {
    return await readGguf(path);
  } catch (error) {
    if (!(error instanceof AppError && error.code === "invalid_value")) throw error;
    const remedy = isCached
      ? "Delete it from the worker's weights cache to have it pulled again."
      : "Give another file; this one is left as it is.";
    throw new AppError(error.code, `${error.message} ${remedy}`, { ...error, cause: error.cause });
  }
}

/** The engine, with the style in which its chat template marks reasoning. */
function withReasoning(engine: WorkerEngine, template: string): WorkerEngine {
  const reasoning = reasoningStyleOf(template);
  if (reasoning === undefined || engine.stage) return engine;
  return {
    info: { ...engine.info, reasoning },
    submit: (id, request, options) => engine.submit(id, request, options),
    cancel: (id) => engine.cancel(id),
    load: () => engine.load(),
    close: () => engine.close(),
    moveStages: () => engine.moveStages?.(),
  };
}
