import { AppError } from "@heddle/base/errors";
import type { RegisterModelRequest } from "@heddle/contracts/api/models";
import type { WeightsSpec } from "@heddle/contracts/engine";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";

/** What an adapter answers as its base does; embeddings are computed without adapters. */
const CAPABILITIES = ["chat", "completions", "reasoning"];

/** Properties of the base model, which an adapter over it cannot set. */
const OF_THE_BASE = ["resources", "scaling"] as const;

/** The records of a LoRA adapter over a registered model: it adds no replicas. */
export function adapterRecords(
  request: RegisterModelRequest & { readonly adapter: { base: string; scale: number } },
  weights: WeightsSpec,
  state: ControlState,
  atMs: number,
): { model: ModelRecord; deployment: DeploymentRecord } {
  const { adapter } = request;
  const { base, deployment } = baseOf(adapter.base, state);
  const given = OF_THE_BASE.find((name) => request[name] !== undefined);
  const option = Object.keys(request.options)[0];
  const own = given ?? (option === undefined ? undefined : `options.${option}`);
  if (own !== undefined)
    throw invalid(own, `it is set on the model '${base.id}', the adapter's base`);
  if (request.engine.kind !== "llama") throw invalid("engine", "libllama runs adapters");
  const model: ModelRecord = {
    id: request.id,
    family: base.family,
    contextWindow: base.contextWindow,
    availability: request.availability,
    intendedUse: request.intended_use,
    ownedBy: request.owned_by,
    capabilities: base.capabilities.filter((name) => CAPABILITIES.includes(name)),
    createdAtMs: atMs,
    deployment: deployment.spec.key,
    backing: request.backing ?? `${base.backing} with the adapter ${weights.file}`,
    standIn: base.standIn || request.stand_in,
    adapter: { base: base.id, weights, scale: adapter.scale },
  };
  return { model, deployment };
}

function baseOf(
  id: string,
  { models, deployments }: ControlState,
): { base: ModelRecord; deployment: DeploymentRecord } {
  const base = models.get(id);
  const deployment = base && deployments.get(base.deployment);
  if (!base || !deployment) {
    throw invalid("adapter.base", `no model has the id '${id}'; register the base model first`);
  }
  if (base.adapter) {
    const why = `'${id}' is an adapter itself; name its base '${base.adapter.base}'`;
    throw invalid("adapter.base", why);
  }
  if (deployment.spec.engine !== "llama") {
    const why = `'${id}' is served by an upstream; register the adapter there, and here its id as a model of that upstream`;
    throw invalid("adapter.base", why);
  }
  return { base, deployment };
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}
