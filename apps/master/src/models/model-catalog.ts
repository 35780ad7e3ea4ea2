import { AppError } from "@heddle/base/errors";
import type { Model } from "@heddle/contracts/api/models";
import type { ReasoningStyle } from "@heddle/contracts/engine";
import { failedReplicas, undividedOnGpus } from "@heddle/control/jobs/scheduling/replica-claims";
import { modelIn } from "@heddle/control/model-names";
import type { ApiKeyRecord, DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { type Caller, seesJobsOf } from "../http/identity/caller.ts";
import type { NodeDirectory, NodeView } from "../nodes/node-directory.ts";
import { servedContextTokens, viewModel } from "./model-view.ts";

type ModelUser = Pick<Caller, "id" | "models" | "grants" | "project">;

/** The registered models as a caller may see and call them. */
export class ModelCatalog {
  readonly #control: ControlPlane;
  readonly #directory: NodeDirectory;
  readonly #waitsFor: (deployment: string) => readonly string[];

  /** `waitsFor` returns what blocks a deployment's next replica. */
  constructor(
    control: ControlPlane,
    directory: NodeDirectory,
    waitsFor: (deployment: string) => readonly string[],
  ) {
    this.#control = control;
    this.#directory = directory;
    this.#waitsFor = waitsFor;
  }

  /**
   * The model that a caller names. Throws `model_not_found`, also for one of another project, or
   * `permission_denied` off its list.
   */
  resolve(id: string, key: ModelUser): ModelRecord {
    const model = this.find(id, key);
    if (!model) {
      const message = `The model \`${id}\` does not exist. GET /api/v1/models lists those that do.`;
      throw new AppError("model_not_found", message, { param: "model", model: id });
    }
    requireListed(id, key);
    return model;
  }

  /** Resolves when this master knows what the leader does of models that are not placed. */
  refreshed(): Promise<void> {
    return this.#directory.divisions.fresh();
  }

  /** A model of the call's project, of the whole cluster, or of another project that the caller reads. */
  find(id: string, key: ModelUser): ModelRecord | undefined {
    const { state } = this.#control;
    const found = modelIn(state, id, key.project);
    if (found && isKnownTo(key, found)) return found;
    if (key.grants.projects?.length === 1) return undefined;
    for (const model of state.models.values()) {
      if (model.id === id && isKnownTo(key, model)) return model;
    }
    return undefined;
  }

  list(key: ModelUser): Model[] {
    const nodes = this.#directory.nodes();
    const { deployments } = this.#control.state;
    const models = [...this.#control.state.models.values()].filter(
      (model) => mayUse(key, model.id) && isKnownTo(key, model),
    );
    return models.map((model) =>
      this.#show(model, key, { deployment: deployments.get(model.deployment), nodes }),
    );
  }

  /** The first chat model by id that the key may use and that a replica is ready to answer. */
  firstReadyChat(key: ModelUser): ModelRecord | undefined {
    return [...this.#control.state.models.values()]
      .filter((model) => mayUse(key, model.id) && isKnownTo(key, model))
      .filter(({ capabilities }) => capabilities.includes("chat"))
      .sort((one, other) => (one.id < other.id ? -1 : 1))
      .find((model) => this.readyReplicas(model) > 0 && !this.ranks(model));
  }

  /** Context tokens of a call now: the registered number, or less if replicas serve less. */
  contextTokens(model: ModelRecord): number {
    const served = servedContextTokens(this.#directory.replicasOf(model.deployment));
    return Math.min(model.contextWindow, served ?? model.contextWindow);
  }

  readyReplicas(model: ModelRecord): number {
    const replicas = this.#directory.replicasOf(model.deployment);
    return replicas.filter(({ phase }) => phase === "ready").length;
  }

  /** Whether choice i of several is drawn as the only one with a seed that is larger by i. */
  countsSeeds(model: ModelRecord): boolean {
    return this.readsTokens(model);
  }

  /** Whether its engine reports the tokens of a prompt. */
  readsTokens({ deployment }: ModelRecord): boolean {
    return this.#control.state.deployments.get(deployment)?.spec.engine === "llama";
  }

  /** How the model marks its reasoning; undefined if it is not known to reason. */
  reasoningStyle(model: ModelRecord): ReasoningStyle | undefined {
    const replicas = this.#directory.replicasOf(model.deployment);
    const reported = replicas.find(({ info }) => info?.reasoning !== undefined)?.info?.reasoning;
    return reported ?? (model.capabilities.includes("reasoning") ? "tagged" : undefined);
  }

  /** Whether it scores documents by a query; false while no replica reports it. */
  ranks(model: ModelRecord): boolean {
    return this.#directory.replicasOf(model.deployment).some(({ info }) => info?.ranks);
  }

  view(id: string, key: ModelUser): Model {
    const model = this.resolve(id, key);
    return this.viewOf(model, key, this.#control.state.deployments.get(model.deployment));
  }

  /** A model that may have no deployment yet. */
  viewOf(model: ModelRecord, key: ModelUser, deployment: DeploymentRecord | undefined): Model {
    return this.#show(model, key, { deployment, nodes: this.#directory.nodes() });
  }

  #show(model: ModelRecord, key: ModelUser, { deployment, nodes }: Served): Model {
    const failures = failedReplicas(this.#control.state, model.deployment);
    const { lineage } = model;
    const showsLineage = lineage !== undefined && seesJobsOf(key, lineage.project);
    const nameOf = (node: string) => this.#control.state.nodes.get(node)?.offer.name ?? node;
    const { undivided = undividedOnGpus(this.#control.state, model.deployment) } =
      this.#directory.divisions.of(model.deployment);
    const held = { waitsFor: this.#waitsFor, undivided, failures, nameOf, showsLineage };
    return viewModel(model, deployment, nodes, held);
  }
}

/** What serves a model. */
interface Served {
  readonly deployment: DeploymentRecord | undefined;
  readonly nodes: readonly NodeView[];
}

/** Permissions by which a caller knows of a project's models. */
const OF_MODELS = ["models:read", "inference:create"];

function isKnownTo({ grants }: Pick<Caller, "grants">, { project }: ModelRecord): boolean {
  return project === undefined || OF_MODELS.some((each) => grants.may(each, project));
}

/** Throws `permission_denied` if the key has a list of models and the id is not on it. */
export function requireListed(
  id: string,
  key: Pick<ApiKeyRecord, "id" | "models">,
  param = "model",
): void {
  if (mayUse(key, id)) return;
  const message = `The API key ${key.id} may not use the model \`${id}\`.`;
  throw new AppError("permission_denied", message, { param, model: id });
}

function mayUse(key: Pick<ApiKeyRecord, "models">, model: string): boolean {
  return key.models.length === 0 || key.models.includes(model);
}
