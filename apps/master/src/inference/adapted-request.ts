import { AppError } from "@heddle/base/errors";
import type { EngineRequest } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";

/** What a key says of calls that do not say it themselves. */
export function withKeyDefaults(request: EngineRequest, deterministic = false): EngineRequest {
  if (!deterministic || request.kind !== undefined) return request;
  return { ...request, deterministic: request.deterministic ?? true };
}

/** Readings of text are those of the base model. */
export function withAdapter(request: EngineRequest, { id, adapter }: ModelRecord): EngineRequest {
  if (adapter === undefined || request.kind === "read") return request;
  if (request.kind === undefined) {
    return { ...request, adapter: { weights: adapter.weights, scale: adapter.scale } };
  }
  const message = `The model \`${id}\` is an adapter over \`${adapter.base}\` and gives text only. Use \`${adapter.base}\`, or a model for embeddings.`;
  throw new AppError("invalid_value", message, { param: "model", model: id });
}
