import { AppError, isErrorCode } from "@heddle/base/errors";
import {
  CHAT_TEMPLATE_ORIGINS,
  type DeploymentSpec,
  type EngineInfo,
  type EngineLoad,
  type EngineOptions,
  type ReplicaPhase,
  type ReplicaStatus,
  type WeightsSpec,
} from "@heddle/contracts/engine";
import type {
  Deployment,
  Deployment__Output,
} from "@heddle/contracts/generated/heddle/v1/Deployment";
import type { EngineInfo__Output } from "@heddle/contracts/generated/heddle/v1/EngineInfo";
import type { EngineLoad__Output } from "@heddle/contracts/generated/heddle/v1/EngineLoad";
import type { EngineOptions__Output } from "@heddle/contracts/generated/heddle/v1/EngineOptions";
import type { Replica, Replica__Output } from "@heddle/contracts/generated/heddle/v1/Replica";
import type { Weights, Weights__Output } from "@heddle/contracts/generated/heddle/v1/Weights";

/** The load of a replica without a running engine. */
export const emptyLoad: EngineLoad = {
  running: 0,
  waiting: 0,
  maxSequences: 0,
  maxQueued: 0,
  kvUsedTokens: 0,
  kvTokens: 0,
  promptTokens: 0,
  cachedTokens: 0,
  generatedTokens: 0,
  residentBytes: 0,
  restarts: 0,
};

export function encodeReplica(status: ReplicaStatus): Replica {
  return { ...status };
}

/** Throws an AppError `server_error` on an unknown phase. */
export function decodeReplica(message: Replica__Output): ReplicaStatus {
  const { deployment, pulledBytes, totalBytes, info } = message;
  return {
    deployment,
    phase: replicaPhase(message.phase),
    pulledBytes,
    totalBytes,
    message: message.message,
    load: message.load ? decodeLoad(message.load) : emptyLoad,
    ...(info && { info: decodeInfo(info) }),
    ...(isErrorCode(message.failureCode) && { failureCode: message.failureCode }),
    ...(message.others !== undefined && { others: message.others }),
  };
}

export function encodeDeployment(spec: DeploymentSpec): Deployment {
  return {
    key: spec.key,
    engine: spec.engine,
    weights: encodeWeights(spec.weights),
    options: { ...spec.options },
  };
}

/** Throws an AppError `invalid_value` on a deployment that this version cannot run. */
export function decodeDeployment(message: Deployment__Output | null): DeploymentSpec {
  if (!message?.weights) throw new AppError("invalid_value", "a deployment names no weights");
  if (message.engine !== "llama") {
    const text = `this node has no engine "${message.engine}": it runs "llama"`;
    throw new AppError("invalid_value", text);
  }
  return {
    key: message.key,
    engine: message.engine,
    weights: decodeWeights(message.weights),
    options: message.options ? decodeOptions(message.options) : {},
  };
}

export function encodeWeights(weights: WeightsSpec): Weights {
  return { ...weights, sources: [...weights.sources] };
}

/** Throws an AppError `invalid_value` if the message names no weights. */
export function decodeWeights(message: Weights__Output | null): WeightsSpec {
  if (!message) throw new AppError("invalid_value", "the request names no weights");
  const { key, file, sources, sha256, sizeBytes, license } = message;
  return {
    key,
    file,
    sources,
    ...(sha256 !== "" && { sha256 }),
    ...(sizeBytes !== 0 && { sizeBytes }),
    ...(license !== "" && { license }),
  };
}

function decodeOptions(message: EngineOptions__Output): EngineOptions {
  const { contextTokens, kvTokens, maxSequences, maxQueued, threads } = message;
  const { prefillBudgetTokens, device, gpuLayers, chatTemplate } = message;
  return {
    ...(contextTokens !== undefined && { contextTokens }),
    ...(kvTokens !== undefined && { kvTokens }),
    ...(maxSequences !== undefined && { maxSequences }),
    ...(maxQueued !== undefined && { maxQueued }),
    ...(threads !== undefined && { threads }),
    ...(prefillBudgetTokens !== undefined && { prefillBudgetTokens }),
    ...(device !== undefined && { device }),
    ...(gpuLayers !== undefined && { gpuLayers }),
    ...(chatTemplate !== undefined && { chatTemplate }),
  };
}

function decodeLoad(message: EngineLoad__Output): EngineLoad {
  const { running, waiting, maxSequences, maxQueued, kvUsedTokens, kvTokens } = message;
  const { promptTokens, cachedTokens, generatedTokens, residentBytes, restarts } = message;
  return {
    running,
    waiting,
    maxSequences,
    maxQueued,
    kvUsedTokens,
    kvTokens,
    promptTokens,
    cachedTokens,
    generatedTokens,
    residentBytes,
    restarts,
  };
}

function decodeInfo(message: EngineInfo__Output): EngineInfo {
  const { engine, device, contextTokens, vocabularySize, parameters, fileType } = message;
  const { reasoning } = message;
  const chatTemplate = CHAT_TEMPLATE_ORIGINS.find((origin) => origin === message.chatTemplate);
  return {
    engine,
    device,
    contextTokens,
    vocabularySize,
    parameters,
    fileType,
    // An unknown style counts as none: tags are then recognized only at the start.
    ...((reasoning === "tagged" || reasoning === "open") && { reasoning }),
    ...(chatTemplate && { chatTemplate }),
  };
}

function replicaPhase(text: string): ReplicaPhase {
  switch (text) {
    case "pulling":
    case "loading":
    case "ready":
    case "failed":
    case "unloading":
      return text;
    default:
      throw new AppError(
        "server_error",
        `a node reports the unknown phase ${JSON.stringify(text)}: run the same version everywhere`,
      );
  }
}
