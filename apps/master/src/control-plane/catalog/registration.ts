import { createHash } from "node:crypto";
import { AppError, toAppError } from "@heddle/base/errors";
import type { RegisterModelRequest, RequestedScaling } from "@heddle/contracts/api/models";
import type {
  DeploymentSpec,
  EngineOptions,
  LlamaDeployment,
  UpstreamDeployment,
  WeightsSpec,
} from "@heddle/contracts/engine";
import type { GpuSplit, ModelPlacement } from "@heddle/contracts/models/model-division";
import { parseWeightsSource } from "@heddle/contracts/weights-source";
import type { ReplicaResources } from "@heddle/control/jobs/records/records";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";
import { adapterRecords, type Registrant } from "./adapter-registration.ts";
import { checkUpstream, type RequestedUpstream, upstreamSpecOf } from "./upstream-registration.ts";

/** What serves a model, before its deployment has a key. */
type Served = Omit<LlamaDeployment, "key"> | Omit<UpstreamDeployment, "key">;

/** Characters of an upstream's model in its deployment's key. */
const MAX_SLUG = 100;

/** The records of a registration: a deployment that serves in the same way is shared. */
export function toRecords(
  request: RegisterModelRequest,
  state: ControlState,
  by: Registrant,
): { model: ModelRecord; deployment: DeploymentRecord } {
  const { adapter } = request;
  if (adapter) return adapterRecords({ ...request, adapter }, weightsOf(request), state, by);
  const served = servedBy(request);
  const resources = resourcesOf(request);
  const replicas = countOf(request);
  const known = shared(state, served, resources, by.project);
  if (known) checkShared(known, replicas);
  const deployment = known ?? { ...fresh(served, resources, by.project), ...replicas };
  const model: ModelRecord = {
    id: request.id,
    family: request.family,
    contextWindow: request.context_window,
    availability: request.availability,
    intendedUse: request.intended_use,
    ownedBy: request.owned_by,
    capabilities: request.capabilities,
    createdAtMs: by.atMs,
    deployment: deployment.spec.key,
    backing: request.backing ?? backingOf(served),
    standIn: request.stand_in,
    ...(by.project !== undefined && { project: by.project }),
  };
  return { model, deployment };
}

function servedBy(request: RegisterModelRequest): Served {
  const { engine } = request;
  if (engine.kind === "openai") return upstreamOf(request, engine);
  const split = splitOf(request);
  const weights = weightsOf(request);
  const placement = placementOf(request);
  return {
    engine: "llama",
    weights,
    options: optionsOf(request.options),
    ...(split && { split }),
    ...(placement && { placement }),
  };
}

function upstreamOf(request: RegisterModelRequest, engine: RequestedUpstream): Served {
  checkUpstream(request, engine);
  const { source, weights, context_window: contextTokens, capabilities } = request;
  const hasFile = source !== undefined || weights !== undefined;
  return {
    engine: "openai",
    upstream: upstreamSpecOf(engine, capabilities),
    ...(hasFile && { weights: weightsOf(request) }),
    options: { contextTokens: request.options.context_tokens ?? contextTokens },
  };
}

function backingOf(served: Served): string {
  if (served.engine === "llama") return served.weights.file;
  const { baseUrl, command, model } = served.upstream;
  return baseUrl === undefined ? `${model}, by ${command}` : `${model} at ${new URL(baseUrl).host}`;
}

function weightsOf({ source, weights }: RegisterModelRequest): WeightsSpec {
  const sources = weights?.sources ?? (source === undefined ? [] : [source]);
  if (source !== undefined && weights !== undefined) {
    throw invalid("source", "give either `source` or `weights`");
  }
  for (const [at, each] of sources.entries()) {
    checkSource(each, source === undefined ? `weights.sources[${at}]` : "source");
  }
  const first = sources[0];
  if (first === undefined) {
    const message = "Missing required parameter: 'weights'. Give `source` or `weights.sources`.";
    throw new AppError("missing_required_parameter", message, { param: "weights" });
  }
  const file = weights?.file ?? fileOf(first);
  requireDigest(sources, weights?.sha256);
  return {
    key: weights?.key ?? weightsKeyOf(file),
    file,
    sources,
    sha256: weights?.sha256,
    sizeBytes: weights?.size_bytes,
    license: weights?.license,
  };
}

/** Refused at registration, because a worker would take the place and then fail. */
function checkSource(text: string, param: string): void {
  try {
    parseWeightsSource(text);
  } catch (error) {
    const { code, message } = toAppError(error);
    throw new AppError(code, message, { param, cause: error });
  }
}

function fileOf(source: string): string {
  const last = (source.split("/").at(-1) ?? "").replace(/[?#@].*$/, "");
  const file = source.startsWith("builtin://") && !last.endsWith(".gguf") ? `${last}.gguf` : last;
  if (/^[A-Za-z0-9][A-Za-z0-9._-]*\.gguf$/.test(file)) return file;
  throw invalid("weights.file", "the source does not end in a .gguf file's name; give it here");
}

/** A file name for weights, from a path or name with any characters. */
export function modelFileName(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).replace(/[^A-Za-z0-9._-]/g, "-");
  return name.replace(/^[^A-Za-z0-9]+/, "").replace(/^\.?gguf$/, "model.gguf");
}

export function weightsKeyOf(file: string): string {
  return file.replace(/\.gguf$/, "").toLowerCase();
}

/** A remote source requires a digest; a local file is the owner's own. */
function requireDigest(sources: readonly string[], sha256: string | undefined): void {
  const remote = sources.find((source) => !/^(file|builtin):\/\//.test(source));
  if (remote === undefined || sha256 !== undefined) return;
  const message = `Missing required parameter: 'weights.sha256'. It is needed for ${remote}.`;
  throw new AppError("missing_required_parameter", message, { param: "weights.sha256" });
}

function optionsOf(options: RegisterModelRequest["options"]): EngineOptions {
  return {
    contextTokens: options.context_tokens,
    kvTokens: options.kv_tokens,
    maxSequences: options.max_sequences,
    maxQueued: options.max_queued,
    threads: options.threads,
    prefillBudgetTokens: options.prefill_budget_tokens,
    decoding: options.decoding && {
      draftTokens: options.decoding.draft_tokens,
      deterministic: options.decoding.deterministic,
      contextShift: options.decoding.context_shift,
    },
    device: options.device,
    gpuLayers: options.gpu_layers,
    chatTemplate: options.chat_template,
    kvDtype: options.kv_dtype,
    stageDtype: options.stage_dtype,
  };
}

/** What the scheduler must find for each replica; it then also chooses the device. */
function resourcesOf(request: RegisterModelRequest): ReplicaResources | undefined {
  const { resources, replicas, options } = request;
  checkSplit(options, resources?.gpu_count ?? 1);
  if (!resources) return undefined;
  if (options.device !== undefined) {
    throw invalid("options.device", "the scheduler chooses the device where `resources` are asked");
  }
  if (replicas === "every-worker") {
    throw invalid("replicas", "give a number: the scheduler finds each replica its GPU");
  }
  const { gpu_count: gpuCount, gpu_type: types = [], gpu_memory_gb: gpuMemoryGb = 0 } = resources;
  return { gpuCount, gpuTypes: typeof types === "string" ? [types] : types, gpuMemoryGb };
}

/** How workers may divide the model; undefined for the default. */
function placementOf(request: RegisterModelRequest): ModelPlacement | undefined {
  const { placement: mode, max_stages: maxStages, options, replicas, resources } = request;
  if (mode === undefined && maxStages === undefined) return undefined;
  if (mode === "whole" && maxStages !== undefined) {
    throw invalid("max_stages", "a `whole` model has no stages");
  }
  if (mode === "sharded" && options.kv_dtype === "q8_0") {
    throw invalid("options.kv_dtype", "the caches of stages are `f16`");
  }
  if (mode === "sharded" && (options.decoding?.deterministic ?? "request") !== "request") {
    throw invalid("options.decoding.deterministic", "stages support `request` alone");
  }
  const onGpus = resources !== undefined || (options.device ?? "cpu") !== "cpu";
  if (mode === "sharded" && onGpus && (options.gpu_layers ?? -1) >= 0) {
    throw invalid("options.gpu_layers", "stages on GPUs have all of their layers there");
  }
  if (mode === "sharded" && replicas === "every-worker") {
    throw invalid("replicas", "give a number: several workers have one replica");
  }
  return { mode: mode ?? "auto", ...(maxStages !== undefined && { maxStages }) };
}

/** The split of a model that needs several GPUs. */
function splitOf({ options, resources }: RegisterModelRequest): GpuSplit | undefined {
  if (resources === undefined || resources.gpu_count < 2) return undefined;
  const { split_mode: mode = "layer", tensor_split: shares = [], main_gpu: mainGpu = 0 } = options;
  return { mode, shares, mainGpu };
}

/** Shares and places are those of the replica's GPUs. */
function checkSplit(options: RegisterModelRequest["options"], gpus: number): void {
  const { tensor_split: shares, main_gpu: main = 0 } = options;
  if (shares && shares.length !== gpus) {
    throw invalid("options.tensor_split", `expected ${gpus} shares, one for each GPU`);
  }
  if (shares?.every((share) => share === 0)) {
    throw invalid("options.tensor_split", "expected a share above 0");
  }
  if (main >= gpus) throw invalid("options.main_gpu", `a replica has ${gpus} GPUs, from 0 on`);
}

/** Within a project, or among models of the whole cluster: who scales one scales no other's. */
function shared(
  { deployments, models }: ControlState,
  served: Served,
  resources: ReplicaResources | undefined,
  project: string | undefined,
): DeploymentRecord | undefined {
  const wanted = canonical(served, resources);
  const isOfProject = ({ spec: { key } }: DeploymentRecord) =>
    [...models.values()].some((model) => model.deployment === key && model.project === project);
  return [...deployments.values()].find(
    (record) => canonical(record.spec, record.resources) === wanted && isOfProject(record),
  );
}

function fresh(
  served: Served,
  resources: ReplicaResources | undefined,
  project: string | undefined,
): Omit<DeploymentRecord, "replicas"> {
  const spec: DeploymentSpec = {
    key: keyOf(canonical(served, resources), served, project),
    ...served,
  };
  return resources ? { spec, resources } : { spec };
}

function keyOf(text: string, served: Served, project: string | undefined): string {
  if (project !== undefined) return keyOfProject(project, text);
  const name = served.engine === "llama" ? served.weights.key : slug(served.upstream.model);
  return `${name}-${createHash("sha256").update(text).digest("hex").slice(0, 8)}`;
}

/** The key of a project's own deployment. It names nothing of it, since workers and jobs show keys to others. */
export function keyOfProject(project: string, ...what: readonly string[]): string {
  const hash = createHash("sha256").update(JSON.stringify([project, ...what]));
  return `project-${hash.digest("hex").slice(0, 16)}`;
}

/** A number of replicas, or bounds within which it follows the load. */
type ReplicaCount = Pick<DeploymentRecord, "replicas" | "scaling">;

/** The first number is within the bounds. */
function countOf({ replicas, scaling }: RegisterModelRequest): ReplicaCount {
  if (!scaling) return { replicas };
  if (replicas === "every-worker") {
    throw invalid("replicas", "give a number where it follows the load");
  }
  return scaledCount(replicas, scaling);
}

export function scaledCount(
  replicas: DeploymentRecord["replicas"],
  scaling: RequestedScaling,
): ReplicaCount {
  const { min, max, idle_unload_s, target_queue, target_ttft_ms, cool_down_s } = scaling;
  const first = typeof replicas === "number" ? replicas : max;
  return {
    replicas: Math.min(max, Math.max(min, first)),
    scaling: {
      min,
      max,
      ...(idle_unload_s !== undefined && { idleMs: 1_000 * idle_unload_s }),
      targetQueue: target_queue,
      targetTtftMs: target_ttft_ms,
      coolDownMs: 1_000 * cool_down_s,
    },
  };
}

/** Another model has set the replicas that both share. */
function checkShared({ spec, scaling }: DeploymentRecord, asked: ReplicaCount): void {
  if (!asked.scaling || canonicalScaling(scaling) === canonicalScaling(asked.scaling)) return;
  const message = `${spec.key} serves another model with other bounds of its replicas. Change them by PUT /api/v1/models/{id}/scaling.`;
  throw new AppError("conflict", message, { param: "scaling" });
}

function canonicalScaling(scaling: DeploymentRecord["scaling"]): string {
  return JSON.stringify(sorted(scaling ?? {}));
}

function slug(model: string): string {
  const name = model.toLowerCase().replace(/[^a-z0-9._-]+/g, "-");
  return name.replace(/^[^a-z0-9]+/, "").slice(0, MAX_SLUG) || "upstream";
}

/** The same text for what serves in the same way, regardless of the order of members. */
function canonical(served: Served, resources: ReplicaResources | undefined): string {
  const { weights, options } = served;
  const file = weights && [weights.key, weights.sha256, weights.sources];
  const upstream = served.engine === "openai" ? [sorted(served.upstream)] : [];
  const needs = resources ? [resources] : [];
  const split = served.engine === "llama" && served.split ? [sorted(served.split)] : [];
  const placed = served.engine === "llama" && served.placement ? [sorted(served.placement)] : [];
  const how = [...upstream, ...needs, ...split, ...placed];
  const parts = [file, sorted(options), ...how];
  return JSON.stringify(parts);
}

function sorted(members: object): [string, unknown][] {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined);
  return entries.sort(([a], [b]) => (a < b ? -1 : 1));
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}
