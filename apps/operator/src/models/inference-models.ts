import { NotFoundError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { Model, ModelScale } from "@heddle/contracts/api/models";
import { INFERENCE_MODEL } from "@heddle/contracts/kubernetes/custom-resources";
import type { EventRecorder } from "../kubernetes/event-recorder.ts";
import {
  addFinalizer,
  hasFinalizer,
  isDeleting,
  removeFinalizer,
  writeStatus,
} from "../kubernetes/lifecycle.ts";
import { isRefusedRequest, refusalText } from "../kubernetes/refusal.ts";
import type { Reconciler, Resources } from "../kubernetes/resource-controller.ts";
import { type InferenceModelObject, refusedStatus, statusOfModel } from "./model-status.ts";

/** A refused spec may be taken later, as when the other object of the id is gone. */
const REFUSED_MS = 30_000;

/** InferenceModels are models of the cluster, under the id of their spec. */
export class InferenceModels implements Reconciler<InferenceModelObject> {
  readonly plural = INFERENCE_MODEL.plural;
  readonly #heddle: Heddle;
  readonly #events: EventRecorder;

  constructor(heddle: Heddle, events: EventRecorder) {
    this.#heddle = heddle;
    this.#events = events;
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
      if (isOwner) await this.#remove(id);
      await removeFinalizer(api, object);
      return undefined;
    }
    const owned = await addFinalizer(api, object);
    if (!isOwner) {
      const { namespace, name } = owner.metadata;
      const message = `the id ${id} is that of the InferenceModel ${namespace}/${name}; give another one`;
      return this.#refuse(owned, resources, "IdTaken", message);
    }
    try {
      const model = await this.#follow(owned, id, resources);
      const status = statusOfModel(model);
      const written = await writeStatus(api, owned, status);
      if (object.status?.phase !== status.phase) {
        const type = status.phase === "Failed" ? "Warning" : "Normal";
        const text = status.message ?? `the model is ${status.phase}`;
        await this.#events.record(written, type, status.phase, text);
      }
      return undefined;
    } catch (error) {
      if (!isRefusedRequest(error)) throw error;
      return this.#refuse(owned, resources, "Refused", refusalText(error));
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

  async #remove(id: string): Promise<void> {
    try {
      await this.#heddle.models.remove(id);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /**
   * A changed spec changes the model; a number of replicas that another client has changed is written
   * into the spec. A model that is gone is registered again.
   */
  async #follow(
    object: InferenceModelObject,
    id: string,
    { api }: Resources<InferenceModelObject>,
  ): Promise<Model> {
    const model = await this.#find(id);
    const { spec } = object;
    if (!model) return this.#heddle.models.register({ ...spec, id });
    const isChanged = object.status?.observedGeneration !== object.metadata.generation;
    if (isChanged) {
      const scale = scaleOf(spec);
      if (scale && !hasScale(model, scale)) await this.#heddle.models.scale(id, scale);
      await this.#heddle.models.register({ ...spec, id });
      return this.#heddle.models.get(id);
    }
    const { wanted_replicas: wanted } = model;
    if (typeof wanted === "number" && spec.replicas !== undefined && spec.replicas !== wanted) {
      await api.patch(object, { spec: { replicas: wanted } });
    }
    return model;
  }

  async #find(id: string): Promise<Model | undefined> {
    try {
      return await this.#heddle.models.get(id);
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  }

  async #refuse(
    object: InferenceModelObject,
    { api }: Resources<InferenceModelObject>,
    reason: string,
    message: string,
  ): Promise<number> {
    const isNew = object.status?.message !== message;
    const written = await writeStatus(api, object, refusedStatus(reason, message));
    if (isNew) await this.#events.record(written, "Warning", reason, message);
    return REFUSED_MS;
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
