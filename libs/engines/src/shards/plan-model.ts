import { AppError } from "@heddle/base/errors";
import type { EngineOptions } from "@heddle/contracts/engine";
import { chooseKvLimits } from "../llama/kv-cache/kv-limits.ts";
import { type CuttableModel, numberValue } from "./cut-rules.ts";
import { type PlannedStage, planStages, type ShardWorker, sizesOf } from "./plan-stages.ts";
import { stageOverhead } from "./stage-overhead.ts";

const BYTES_PER_MIB = 2 ** 20;

/** The stages of a model, and the sizes of the caches, which all of them share. */
export interface ModelPlan {
  readonly stages: readonly PlannedStage[];
  readonly contextTokens: number;
  readonly kvTokens: number;
  readonly maxSequences: number;
}

/**
 * Divides a model between at least two workers, whose order is kept. Throws `unprocessable` where it does not
 * fit, with what it needs and what they have.
 */
export function planModel(
  model: CuttableModel,
  options: EngineOptions,
  workers: readonly ShardWorker[],
  maxStages: number,
): ModelPlan {
  const { contextTokens, kvTokens, maxSequences } = limitsOf(model, options, workers);
  const overhead = stageOverhead(model, kvTokens);
  const demand = { kvTokens, overhead, minStages: 2, maxStages };
  const stages = planStages(model, workers, demand);
  if (stages) return { stages, contextTokens, kvTokens, maxSequences };
  throw new AppError("unprocessable", misfit(model, kvTokens, workers, maxStages));
}

/** Memory that a worker needs for the whole model, with the smallest cache that the options allow. */
export function wholeBytes(model: CuttableModel, options: EngineOptions): number {
  const { kvTokens } = limitsOf(model, options, []);
  const kvBytes = sizesOf(model).kvBefore[model.blocks]! * kvTokens;
  return model.file.sizeBytes + kvBytes + stageOverhead(model, kvTokens).last;
}

function limitsOf(
  model: CuttableModel,
  { contextTokens, kvTokens, maxSequences }: EngineOptions,
  workers: readonly ShardWorker[],
) {
  const sizes = sizesOf(model);
  const trained = numberValue(model.file.metadata.get(`${model.architecture}.context_length`));
  const memory = workers.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  const facts = {
    trainedTokens: Number.isFinite(trained) ? trained : Number.MAX_SAFE_INTEGER,
    bytesPerToken: sizes.kvBefore[model.blocks]!,
    freeBytes: Math.max(0, memory - model.file.sizeBytes),
    onCpu: true,
    canShare: true,
  };
  return chooseKvLimits(facts, { contextTokens, kvTokens, maxSequences, needsPool: true });
}

function misfit(
  model: CuttableModel,
  kvTokens: number,
  workers: readonly ShardWorker[],
  maxStages: number,
): string {
  const kvBytes = sizesOf(model).kvBefore[model.blocks]! * kvTokens;
  const needed = mib(model.file.sizeBytes + kvBytes);
  const has = workers.map(({ name, memoryBytes }) => `${name} has ${mib(memoryBytes)}`).join(", ");
  const { earlier, last } = stageOverhead(model, kvTokens);
  const beside = `${mib(earlier)} MiB more for each stage and ${mib(last)} for the last one`;
  return `the model does not fit into ${maxStages} stages: it needs ${needed} MiB with the keys and values of ${kvTokens} tokens, and ${beside}; ${has || "no worker is free"} (MiB). Add workers or memory, or lower kv_tokens`;
}

function mib(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_MIB);
}
