import type { Heddle } from "@heddle/client/heddle";
import type { Model, ModelSpec } from "@heddle/contracts/api/models";
import { INFERENCE_MODEL } from "@heddle/contracts/kubernetes/custom-resources";
import { RESOURCE_GROUP } from "@heddle/contracts/kubernetes/resource-kind";
import {
  addFinalizer,
  hasFinalizer,
  isDeleting,
  removeFinalizer,
} from "../kubernetes/lifecycle.ts";
import type { NamespaceAccess } from "../kubernetes/namespace-access.ts";
import { isRefusedRequest, orNotFound, refusalText } from "../kubernetes/refusal.ts";
import type { Reconciler, Resources } from "../kubernetes/resource-controller.ts";
import type { StatusWriter } from "../kubernetes/status-writer.ts";
import { mergedParts, partsOfModel, partsOfSpec, partsText, specPatch } from "./model-parts.ts";
import { type InferenceModelObject, statusOfModel } from "./model-status.ts";

const CONDITIONS = ["Accepted", "Ready"];
const MODEL_LABEL = `${RESOURCE_GROUP}/inference-model`;

/** InferenceModels are models of the cluster, under the id of their spec. */
export class InferenceModels implements Reconciler<InferenceModelObject> {
  readonly plural = INFERENCE_MODEL.plural;
  readonly #heddle: Heddle;
  readonly #statuses: StatusWriter;
  readonly #access: NamespaceAccess;

  constructor(heddle: Heddle, statuses: StatusWriter, access: NamespaceAccess) {
    this.#heddle = heddle;
    this.#statuses = statuses;
    this.#access = access;
  }

  idOf({ spec, metadata }: InferenceModelObject): string {
    return spec.id ?? metadata.name;
  }

  async poll(): Promise<ReadonlyMap<string, string>> {
    const models = await this.#heddle.models.list();
    return new Map(
      models.map((model) => {
        const { id, status, wanted_replicas, replicas, waiting_for } = model;
        const phases = replicas.map(({ phase, message }) => [phase, message]);
        const shown = [partsOfModel(model), status, wanted_replicas, phases, waiting_for];
        return [id, JSON.stringify(shown)];
      }),
    );
  }

  async reconcile(
    object: InferenceModelObject,
    resources: Resources<InferenceModelObject>,
  ): Promise<number | undefined> {
    const { api } = resources;
    const id = this.idOf(object);
    const owner = this.#ownerOf(id, resources);
    const isOwner = owner?.metadata.uid === object.metadata.uid;
    const message = this.#refusalOf(object);
    if (isDeleting(object)) {
      if (!hasFinalizer(object)) return undefined;
      if (isOwner) await orNotFound(this.#heddle.models.remove(id));
      await removeFinalizer(api, object);
      return undefined;
    }
    if (message) {
      return this.#statuses.refuse(api, object, { reason: "Refused", message, types: CONDITIONS });
    }
    const owned = await addFinalizer(resources, object);
    if (owner && !isOwner) {
      const { namespace, name } = owner.metadata;
      const message = `the id ${id} is that of the InferenceModel ${namespace}/${name}; give another one`;
      return this.#statuses.refuse(api, owned, { reason: "IdTaken", message, types: CONDITIONS });
    }
    try {
      const { model, current } = await this.#follow(owned, id, resources);
      const selector = `${MODEL_LABEL}=${object.metadata.uid}`;
      const status = { ...statusOfModel(model), selector };
      await this.#statuses.show(api, current, status, object.status?.phase);
      return undefined;
    } catch (error) {
      if (!isRefusedRequest(error)) throw error;
      const refusal = { reason: "Refused", message: refusalText(error), types: CONDITIONS };
      return this.#statuses.refuse(api, owned, refusal);
    }
  }

  #refusalOf({ metadata }: InferenceModelObject): string | undefined {
    return this.#access.clusterRefusal(metadata.namespace, INFERENCE_MODEL.kind);
  }

  /** The oldest of several objects with an id that may change models; the others change nothing. */
  #ownerOf(
    id: string,
    { objects }: Resources<InferenceModelObject>,
  ): InferenceModelObject | undefined {
    const age = ({ metadata }: InferenceModelObject) =>
      `${metadata.creationTimestamp} ${metadata.uid}`;
    const [oldest] = [...objects()]
      .filter((other) => this.idOf(other) === id && !this.#refusalOf(other))
      .sort((left, right) => (age(left) < age(right) ? -1 : 1));
    return oldest;
  }

  /**
   * Carries what has changed on one side since both agreed to the other; if both have, the spec wins. A
   * model that is gone is registered again. Resolves with the object as it is then: its status is about
   * the changed spec, which is no request of Kubernetes' side.
   */
  async #follow(
    object: InferenceModelObject,
    id: string,
    { api }: Resources<InferenceModelObject>,
  ): Promise<{ readonly model: Model; readonly current: InferenceModelObject }> {
    const { spec } = object;
    const present = await orNotFound(this.#get(id));
    const isRefused = object.status?.phase === "Refused";
    const isChanged = object.status?.observedGeneration !== object.metadata.generation;
    const isCarried = present && !isChanged && !isRefused;
    const model = isCarried ? present : await this.#register(object, id, present);
    const patch = specPatch(spec, model);
    return { model, current: patch ? await api.patch(object, { spec: patch }) : object };
  }

  /** Registers the object's model, as its spec asks, with what else has changed in the cluster. */
  async #register(
    { spec, status }: InferenceModelObject,
    id: string,
    present: Model | undefined,
  ): Promise<Model> {
    if (!present) return this.#heddle.models.register({ ...spec, id });
    const there = partsOfModel(present);
    const { scale, ...fields } = mergedParts(partsOfSpec(spec), there, status?.settings);
    if (scale && partsText(scale) !== partsText(there.scale)) {
      await this.#heddle.models.scale(id, scale);
    }
    const count = scale && { scaling: undefined, ...scale };
    await this.#heddle.models.register({ ...spec, ...fields, ...count, id } as ModelSpec);
    return this.#get(id);
  }

  /** A master that is behind would show what was changed here as changed back. */
  #get(id: string): Promise<Model> {
    return this.#heddle.models.get(id, { consistency: "strong" });
  }
}
