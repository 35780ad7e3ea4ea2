import { AppError, isErrorCode } from "@heddle/base/errors";
import {
  CHAT_TEMPLATE_ORIGINS,
  DETERMINISTIC_MODES,
  type DecodingOptions,
  type DeploymentSpec,
  type EngineInfo,
  type EngineLoad,
  type EngineOptions,
  KV_DTYPES,
  type ReplicaPhase,
  type ReplicaStatus,
  type WeightsSpec,
} from "@heddle/contracts/engine";
import type { DecodingOptions__Output } from "@heddle/contracts/generated/heddle/v1/DecodingOptions";
import type {
  Deployment,
  Deployment__Output,
} from "@heddle/contracts/generated/heddle/v1/Deployment";
import type { EngineInfo__Output } from "@heddle/contracts/generated/heddle/v1/EngineInfo";
import type { EngineLoad__Output } from "@heddle/contracts/generated/heddle/v1/EngineLoad";
import type { EngineOptions__Output } from "@heddle/contracts/generated/heddle/v1/EngineOptions";
import type { GpuSplit__Output } from "@heddle/contracts/generated/heddle/v1/GpuSplit";
import type { Replica, Replica__Output } from "@heddle/contracts/generated/heddle/v1/Replica";
import type { Stage } from "@heddle/contracts/generated/heddle/v1/Stage";
import type { Upstream__Output } from "@heddle/contracts/generated/heddle/v1/Upstream";
import type { Weights, Weights__Output } from "@heddle/contracts/generated/heddle/v1/Weights";
import {
  type GpuSplit,
  type ModelStage,
  SPLIT_MODES,
  STAGE_DTYPES,
} from "@heddle/contracts/models/model-division";
import {
  UPSTREAM_DIALECTS,
  UPSTREAM_PROBES,
  type UpstreamSpec,
} from "@heddle/contracts/models/upstream-spec";

/** The load of a replica without a running engine. */
export const emptyLoad: Required<Omit<EngineLoad, "stage">> = {
  running: 0,
  waiting: 0,
  maxSequences: 0,
  maxQueued: 0,
  kvUsedTokens: 0,
  kvTokens: 0,
  promptTokens: 0,
  cachedTokens: 0,
  generatedTokens: 0,
  draftTokens: 0,
  acceptedTokens: 0,
  residentBytes: 0,
  restarts: 0,
};

export function encodeReplica({ stage, unreachable, ...status }: ReplicaStatus): Replica {
  return {
    ...status,
    ...(stage && { stage: encodeStage(stage) }),
    ...(unreachable && { unreachable: [...unreachable] }),
  };
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
    ...(message.stage && { stage: message.stage }),
    ...(message.unreachable.length > 0 && { unreachable: message.unreachable }),
  };
}

export function encodeDeployment(spec: DeploymentSpec): Deployment {
  return {
    key: spec.key,
    engine: spec.engine,
    weights: spec.weights && encodeWeights(spec.weights),
    options: { ...spec.options },
    ...(spec.engine === "llama" &&
      spec.split && { split: { ...spec.split, shares: [...spec.split.shares] } }),
    ...(spec.engine === "llama" && spec.stage && { stage: encodeStage(spec.stage) }),
    ...(spec.engine === "openai" && { upstream: { ...spec.upstream } }),
  };
}

/** Throws an AppError `invalid_value` on a deployment that this version cannot run. */
export function decodeDeployment(message: Deployment__Output | null): DeploymentSpec {
  const { key = "", engine = "", upstream, split, stage, weights = null } = message ?? {};
  const options = message?.options ? decodeOptions(message.options) : {};
  switch (engine) {
    case "llama":
      return {
        key,
        engine,
        weights: decodeWeights(weights),
        options,
        ...(split && { split: decodeSplit(split) }),
        ...(stage && { stage }),
      };
    case "openai":
      return {
        key,
        engine,
        upstream: decodeUpstream(upstream ?? null),
        ...(weights && { weights: decodeWeights(weights) }),
        options,
      };
    default: {
      const text = `this node has no engine "${engine}": it runs "llama" and "openai"`;
      throw new AppError("invalid_value", text);
    }
  }
}

function encodeStage(stage: ModelStage): Stage {
  return { ...stage, peers: [...stage.peers] };
}

function decodeSplit({ mode, shares, mainGpu }: GpuSplit__Output): GpuSplit {
  return { mode: SPLIT_MODES.find((known) => known === mode) ?? "layer", shares, mainGpu };
}

function decodeUpstream(message: Upstream__Output | null): UpstreamSpec {
  const dialect = UPSTREAM_DIALECTS.find((known) => known === message?.dialect);
  const probe = UPSTREAM_PROBES.find((known) => known === message?.probe);
  if (!message || !dialect || !probe) {
    const what = message ? `${message.dialect}, ${message.probe}` : "nothing";
    const text = `a deployment names an upstream that this node does not know (${what}): run the same version everywhere`;
    throw new AppError("invalid_value", text);
  }
  const { baseUrl, command, model, apiKey, maxConcurrency } = message;
  const { connectTimeoutMs, firstByteTimeoutMs, idleTimeoutMs } = message;
  return {
    ...(baseUrl !== "" && { baseUrl }),
    ...(command !== "" && { command }),
    model,
    dialect,
    ...(apiKey !== "" && { apiKey }),
    probe,
    maxConcurrency,
    connectTimeoutMs,
    firstByteTimeoutMs,
    idleTimeoutMs,
    maxRetries: message.maxRetries,
    probeIntervalMs: message.probeIntervalMs,
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

/** The options of an engine as a message has them. */
export function decodeOptions(message: EngineOptions__Output): EngineOptions {
  const { contextTokens, kvTokens, maxSequences, maxQueued, threads } = message;
  const { prefillBudgetTokens, decoding, device, gpuLayers, chatTemplate } = message;
  const kvDtype = KV_DTYPES.find((dtype) => dtype === message.kvDtype);
  const stageDtype = STAGE_DTYPES.find((dtype) => dtype === message.stageDtype);
  return {
    ...(contextTokens !== undefined && { contextTokens }),
    ...(kvTokens !== undefined && { kvTokens }),
    ...(maxSequences !== undefined && { maxSequences }),
    ...(maxQueued !== undefined && { maxQueued }),
    ...(threads !== undefined && { threads }),
    ...(prefillBudgetTokens !== undefined && { prefillBudgetTokens }),
    ...(decoding && { decoding: decodeDecoding(decoding) }),
    ...(device !== undefined && { device }),
    ...(gpuLayers !== undefined && { gpuLayers }),
    ...(chatTemplate !== undefined && { chatTemplate }),
    ...(kvDtype && { kvDtype }),
    ...(stageDtype && { stageDtype }),
  };
}

function decodeDecoding(message: DecodingOptions__Output): DecodingOptions {
  const { draftTokens, contextShift } = message;
  const deterministic = DETERMINISTIC_MODES.find((mode) => mode === message.deterministic);
  return {
    ...(draftTokens !== undefined && { draftTokens }),
    ...(deterministic && { deterministic }),
    ...(contextShift && { contextShift }),
  };
}

function decodeLoad(message: EngineLoad__Output): EngineLoad {
  const { running, waiting, maxSequences, maxQueued, kvUsedTokens, kvTokens } = message;
  const { promptTokens, cachedTokens, generatedTokens, residentBytes, restarts } = message;
  const { draftTokens, acceptedTokens, stage } = message;
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
    draftTokens,
    acceptedTokens,
    residentBytes,
    restarts,
    ...(stage && { stage }),
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
    ...(message.ranks && { ranks: true }),
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
