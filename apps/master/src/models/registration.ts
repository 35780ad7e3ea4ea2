import { createHash } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import type { EngineOptions, WeightsSpec } from "@heddle/contracts/engine";
import type { RegisterModelRequest } from "@heddle/contracts/models";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";

/** The records of a registration: a deployment that runs the same weights alike is shared. */
export function toRecords(
  request: RegisterModelRequest,
  state: ControlState,
  atMs: number,
): { model: ModelRecord; deployment: DeploymentRecord } {
  const weights = weightsOf(request);
  const options = optionsOf(request.options);
  const deployment = shared(state, weights, options) ?? fresh(weights, options, request.replicas);
  const model: ModelRecord = {
    id: request.id,
    family: request.family,
    contextWindow: request.context_window,
    availability: request.availability,
    intendedUse: request.intended_use,
    ownedBy: request.owned_by,
    capabilities: request.capabilities,
    createdAtMs: atMs,
    deployment: deployment.spec.key,
    backing: request.backing ?? weights.file,
    standIn: request.stand_in,
  };
  return { model, deployment };
}

function weightsOf({ source, weights }: RegisterModelRequest): WeightsSpec {
  const sources = weights?.sources ?? (source === undefined ? [] : [source]);
  if (source !== undefined && weights !== undefined) {
    throw invalid("source", "give either `source` or `weights`");
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

function fileOf(source: string): string {
  const last = (source.split("/").at(-1) ?? "").replace(/[?#@].*$/, "");
  const file = source.startsWith("builtin://") && !last.endsWith(".gguf") ? `${last}.gguf` : last;
  if (/^[A-Za-z0-9][A-Za-z0-9._-]*\.gguf$/.test(file)) return file;
  throw invalid("weights.file", "the source does not end in a .gguf file's name; give it here");
}

/** The name under which weights are kept, from a path or file name that may have any characters. */
export function fileNameOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).replace(/[^A-Za-z0-9._-]/g, "-");
  return name.replace(/^[^A-Za-z0-9]+/, "").replace(/^\.?gguf$/, "model.gguf");
}

export function weightsKeyOf(file: string): string {
  return file.replace(/\.gguf$/, "").toLowerCase();
}

/** What comes over a network must be told to be right; a local file is the owner's own. */
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
    device: options.device,
    gpuLayers: options.gpu_layers,
    chatTemplate: options.chat_template,
  };
}

function shared(
  state: ControlState,
  weights: WeightsSpec,
  options: EngineOptions,
): DeploymentRecord | undefined {
  const wanted = canonical(weights, options);
  for (const record of state.deployments.values()) {
    if (canonical(record.spec.weights, record.spec.options) === wanted) return record;
  }
  return undefined;
}

function fresh(
  weights: WeightsSpec,
  options: EngineOptions,
  replicas: DeploymentRecord["replicas"],
): DeploymentRecord {
  const digest = createHash("sha256").update(canonical(weights, options)).digest("hex");
  const key = `${weights.key}-${digest.slice(0, 8)}`;
  return { replicas, spec: { key, engine: "llama", weights, options } };
}

/** The same text for the same weights and options, whatever the order of their members. */
function canonical(weights: WeightsSpec, options: EngineOptions): string {
  const identity = weights.sha256 ?? weights.sources.join(" ");
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return JSON.stringify([weights.key, identity, entries.sort(([a], [b]) => (a < b ? -1 : 1))]);
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}
