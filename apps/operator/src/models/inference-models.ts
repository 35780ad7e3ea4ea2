import type { Heddle } from "@heddle/client/heddle";
import type { Model, ModelScale } from "@heddle/contracts/api/models";
import { INFERENCE_MODEL } from "@heddle/contracts/kubernetes/custom-resources";
import {
  addFinalizer,
  hasFinalizer,
  isDeleting,
  removeFinalizer,
} from "../kubernetes/lifecycle.ts";
import { isRefusedRequest, orNotFound, refusalText } from "../kubernetes/refusal.ts";
import type { Reconciler, Resources } from "../kubernetes/resource-controller.ts";
import type { StatusWriter } from "../kubernetes/status-writer.ts";
import { type InferenceModelObject, statusOfModel } from "./model-status.ts";

const CONDITIONS = ["Accepted", "Ready"];

/** InferenceModels are models of the cluster, under the id of their spec. */
export class InferenceModels implements Reconciler<InferenceModelObject> {
  readonly plural = INFERENCE_MODEL.plural;
  readonly #heddle: Heddle;
  readonly #statuses: StatusWriter;

  constructor(heddle: Heddle, statuses: StatusWriter) {
    this.#heddle = heddle;
    this.#statuses = statuses;
  }

  idOf({ spec, metadata }: InferenceModelObject): string {
    return spec.id ?? metadata.name;
  }

  async look(): Promise<ReadonlyMap<string, string>> {
    const models = await this.#heddle.models.list();
    return new Map(
      models.map(({ id, status, wanted_replicas, scaling, replicas, waiting_for }) => {
        const phases = replicas.map(({ phase, message }) => [phase, message]);
        return [id, JSON.stringify([status, wanted_replicas, scaling, phases, waiting_for])];
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
    const isOwner = owner === undefined || owner.metadata.uid === object.metadata.uid;
    if (isDeleting(object)) {
      if (!hasFinalizer(object)) return undefined;
      if (isOwner) await orNotFound(this.#heddle.models.remove(id));
      await removeFinalizer(api, object);
      return undefined;
    }
    const owned = await addFinalizer(api, object);
    if (!isOwner) {
      const { namespace, name } = owner.metadata;
      const message = `the id ${id} is that of the InferenceModel ${namespace}/${name}; give another one`;
      return this.#statuses.refuse(api, owned, { reason: "IdTaken", message, types: CONDITIONS });
    }
    try {
      const { model, current } = await this.#follow(owned, id, resources);
      await this.#statuses.show(api, current, statusOfModel(model), object.status?.phase);
      return undefined;
    } catch (error) {
      if (!isRefusedRequest(error)) throw error;
      const refusal = { reason: "Refused", message: refusalText(error), types: CONDITIONS };
      return this.#statuses.refuse(api, owned, refusal);
    }
  }

  /** Of several objects with an id the oldest one, which the others do not disturb. */
  #ownerOf(
    id: string,
    { objects }: Resources<InferenceModelObject>,
  ): InferenceModelObject | undefined {
    const age = ({ metadata }: InferenceModelObject) =>
      `${metadata.creationTimestamp} ${metadata.uid}`;
    const [oldest] = [...objects()]
      .filter((other) => this.idOf(other) === id)
      .sort((left, right) => (age(left) < age(right) ? -1 : 1));
    return oldest;
  }

  /**
   * A changed spec changes the model; a number of replicas that another client has changed is written
   * into the spec. A model that is gone is registered again. Resolves with the object as it is then: its
   * status is about the changed spec, which is no request of Kubernetes' side.
   */
  async #follow(
    object: InferenceModelObject,
    id: string,
    { api }: Resources<InferenceModelObject>,
  ): Promise<{ readonly model: Model; readonly current: InferenceModelObject }> {
    const current = object;
    const model = await orNotFound(this.#heddle.models.get(id));
    const { spec } = object;
    if (!model) return { model: await this.#heddle.models.register({ ...spec, id }), current };
    const isChanged = object.status?.observedGeneration !== object.metadata.generation;
    if (isChanged) {
      const scale = scaleOf(spec);
      if (scale && !hasScale(model, scale)) await this.#heddle.models.scale(id, scale);
      await this.#heddle.models.register({ ...spec, id });
      return { model: await this.#heddle.models.get(id), current };
    }
    const { wanted_replicas: wanted } = model;
    if (typeof wanted === "number" && spec.replicas !== undefined && spec.replicas !== wanted) {
      return { model, current: await api.patch(object, { spec: { replicas: wanted } }) };
    }
    return { model, current };
  }
}

/** What the spec says of the number of replicas; undefined if nothing. */
function scaleOf({ replicas, scaling }: InferenceModelObject["spec"]): ModelScale | undefined {
  if (scaling !== undefined) return { scaling };
  return replicas === undefined ? undefined : { replicas };
}

function hasScale({ wanted_replicas, scaling }: Model, wanted: ModelScale): boolean {
  return wanted.scaling === undefined && scaling === null && wanted.replicas === wanted_replicas;
}
