import {
  type ConditionNow,
  type CustomResource,
  type ResourceStatus,
  SPEC_CURRENT,
} from "./custom-resource.ts";
import type { EventRecorder } from "./event-recorder.ts";
import { writeStatus } from "./lifecycle.ts";
import { reasonText } from "./reason-text.ts";
import type { ResourceApi } from "./resource-api.ts";

type AnyResource = CustomResource<unknown, ResourceStatus>;

/** A status with what an event says of it; null removes a field. */
export interface ShownStatus {
  readonly phase: string;
  readonly reason: string | null;
  readonly message: string | null;
  readonly conditions: readonly ConditionNow[];
}

/** A refused spec may be taken later, as when its queue is made. */
const REFUSED_MS = 30_000;
const BAD_PHASES: ReadonlySet<string> = new Set(["Failed", "Lost", "Unavailable"]);

/** Writes the status of the objects of all kinds, and an event at each new phase, refusal and change without effect. */
export class StatusWriter {
  readonly #events: EventRecorder;

  constructor(events: EventRecorder) {
    this.#events = events;
  }

  async show<R extends AnyResource>(
    api: ResourceApi<R>,
    object: R,
    status: ShownStatus,
    phaseBefore = object.status?.phase,
  ): Promise<R> {
    const written = await writeStatus(api, object, status);
    const { phase } = status;
    if (phaseBefore !== phase) {
      const type = BAD_PHASES.has(phase) ? "Warning" : "Normal";
      await this.#events.record(written, type, phase, reasonText(status));
    }
    const current = status.conditions.find(({ type }) => type === SPEC_CURRENT);
    const isChanged = object.status?.observedGeneration !== object.metadata.generation;
    if (isChanged && current?.status === "False") {
      await this.#events.record(written, "Warning", current.reason, current.message);
    }
    return written;
  }

  /**
   * Says that the cluster does not take the object, whose conditions of these types are then false.
   * Resolves with the milliseconds after which it is tried again.
   */
  async refuse<R extends AnyResource>(
    api: ResourceApi<R>,
    object: R,
    { reason, message, types }: Refusal,
  ): Promise<number> {
    const isNew = object.status?.message !== message;
    const why = { reason, message };
    const conditions = types.map((type) => ({ type, status: "False" as const, ...why }));
    const status: ShownStatus = { phase: "Refused", ...why, conditions };
    const written = await writeStatus(api, object, status);
    if (isNew) await this.#events.record(written, "Warning", reason, message);
    return REFUSED_MS;
  }
}

interface Refusal {
  /** A word in CamelCase, for programs. */
  readonly reason: string;
  readonly message: string;
  /** The conditions that are false. */
  readonly types: readonly string[];
}
