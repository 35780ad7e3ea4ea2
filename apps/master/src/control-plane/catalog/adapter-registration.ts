import { AppError } from "@heddle/base/errors";
import type { RegisterModelRequest } from "@heddle/contracts/api/models";
import type { WeightsSpec } from "@heddle/contracts/engine";
import type { ControlState, DeploymentRecord, ModelRecord } from "@heddle/control/state";

/** For whom a model is registered. */
export interface Registrant {
  readonly atMs: number;
  /** The only project that is to know of it; absent for the whole cluster. */
  readonly project: string | undefined;
  /** The model that an id names to the caller. */
  readonly baseOf: (id: string) => ModelRecord | undefined;
}

/** What an adapter answers as its base does; embeddings are computed without adapters. */
const CAPABILITIES = ["chat", "completions", "reasoning"];

/** Properties of the base model, which an adapter over it cannot set. */
const OF_THE_BASE = ["resources", "scaling"] as const;

/** The records of a LoRA adapter over a registered model: it adds no replicas. */
export function adapterRecords(
  request: RegisterModelRequest & { readonly adapter: { base: string; scale: number } },
  weights: WeightsSpec,
  state: ControlState,
  { atMs, project, baseOf }: Registrant,
): { model: ModelRecord; deployment: DeploymentRecord } {
  const { adapter } = request;
  const { base, deployment } = checkedBase(adapter.base, baseOf(adapter.base), state);
  if (base.project !== undefined && base.project !== project) {
    const why = `'${base.id}' is a model of the project '${base.project}': register the adapter there with the visibility 'project'`;
    throw invalid("adapter.base", why);
  }
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
    ...(project !== undefined && { project }),
  };
  return { model, deployment };
}

function checkedBase(
  id: string,
  base: ModelRecord | undefined,
  { deployments }: ControlState,
): { base: ModelRecord; deployment: DeploymentRecord } {
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
