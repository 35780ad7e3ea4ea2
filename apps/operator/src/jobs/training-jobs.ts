import { NotFoundError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { Job } from "@heddle/contracts/api/job-replies";
import { JOB_STATES } from "@heddle/contracts/api/job-spec";
import { RESOURCE_GROUP, TRAINING_JOB } from "@heddle/contracts/kubernetes/custom-resources";
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
import { jobIdOf } from "./job-id.ts";
import { isEnded, isFinished, statusOfJob, type TrainingJobObject } from "./job-status.ts";

/** On every job that the operator has submitted. */
const UID_LABEL = `${RESOURCE_GROUP}/uid`;
const LIVE = JOB_STATES.filter((state) => !isEnded({ state }));
/** Progress alone is shown so often. */
const PROGRESS_MS = 5_000;
/** A refused spec may be taken later, as when its queue is made. */
const REFUSED_MS = 30_000;
const CANCELLING_MS = 1_000;

/** TrainingJobs are jobs of the cluster, under an id that is derived from the object's uid. */
export class TrainingJobs implements Reconciler<TrainingJobObject> {
  readonly plural = TRAINING_JOB.plural;
  readonly #heddle: Heddle;
  readonly #events: EventRecorder;

  constructor(heddle: Heddle, events: EventRecorder) {
    this.#heddle = heddle;
    this.#events = events;
  }

  idOf({ metadata }: TrainingJobObject): string {
    return jobIdOf(metadata);
  }

  /** The live jobs; one that has ended is one that is missing. */
  async look(): Promise<ReadonlyMap<string, string>> {
    const found = new Map<string, string>();
    const time = Math.floor(Date.now() / PROGRESS_MS);
    for await (const job of this.#heddle.jobs.list({
      label: UID_LABEL,
      state: LIVE,
      limit: 1_000,
    })) {
      found.set(job.id, `${job.since} ${job.state} ${job.attempt} ${job.progress ? time : ""}`);
    }
    return found;
  }

  async reconcile(
    object: TrainingJobObject,
    { api, expect }: Resources<TrainingJobObject>,
  ): Promise<number | undefined> {
    const id = jobIdOf(object.metadata);
    const job = await this.#find(id);
    if (isDeleting(object)) {
      if (!hasFinalizer(object)) return undefined;
      if (job && !isEnded(job)) return this.#cancel(job);
      await removeFinalizer(api, object);
      return undefined;
    }
    if (!job && isFinished(object)) return this.#expire(object, api);
    // Nothing of a job that has ended has to be removed with its object.
    const owned = job && isEnded(job) ? object : await addFinalizer(api, object);
    const present = job ?? (await this.#submit(owned, id, api));
    if (!present) return REFUSED_MS;
    const followed = await this.#followSuspension(owned, present, api);
    const shown = followed === present ? present : ((await this.#find(id)) ?? present);
    const { phase } = object.status ?? {};
    const status = statusOfJob(shown, owned);
    const written = await writeStatus(api, owned, status);
    if (phase !== status.phase) await this.#announce(written, status);
    if (isEnded(shown)) {
      if (hasFinalizer(written)) await removeFinalizer(api, written);
      return this.#expire(written, api);
    }
    expect(id);
    return undefined;
  }

  async #find(id: string): Promise<Job | undefined> {
    try {
      return await this.#heddle.jobs.get(id);
    } catch (error) {
      if (error instanceof NotFoundError) return undefined;
      throw error;
    }
  }

  async #cancel(job: Job): Promise<number> {
    if (job.state !== "cancelling") await this.#heddle.jobs.cancel(job.id);
    return CANCELLING_MS;
  }

  /** Undefined where the cluster refuses the spec, which the object's conditions then say. */
  async #submit(
    object: TrainingJobObject,
    id: string,
    api: Resources<TrainingJobObject>["api"],
  ): Promise<Job | undefined> {
    const { suspend: _, ttl_seconds_after_finished: __, ...spec } = object.spec;
    const { namespace, name, uid } = object.metadata;
    const labels = { ...spec.labels, [UID_LABEL]: uid };
    try {
      await this.#heddle.jobs.create({
        ...spec,
        id,
        name: spec.name ?? `${namespace}.${name}`.slice(0, 128),
        labels,
      });
    } catch (error) {
      if (!isRefusedRequest(error)) throw error;
      const refusal = { reason: "Refused", message: refusalText(error) };
      const accepted = { type: "Accepted", status: "False" as const, ...refusal };
      const isNew = object.status?.message !== refusal.message;
      const status = { phase: "Refused", ...refusal, conditions: [accepted] };
      const written = await writeStatus(api, object, status);
      if (isNew) await this.#events.record(written, "Warning", "Refused", refusal.message);
      return undefined;
    }
    return this.#heddle.jobs.get(id, { consistency: "strong" });
  }

  /**
   * A changed spec suspends or resumes the job; a job that was suspended or resumed by another client
   * changes the spec: both views show what was asked for last. Resolves with another job if it changed.
   */
  async #followSuspension(
    object: TrainingJobObject,
    job: Job,
    api: Resources<TrainingJobObject>["api"],
  ): Promise<Job> {
    if (isEnded(job)) return job;
    const wanted = object.spec.suspend ?? false;
    const isSuspended = job.state === "suspended";
    if (wanted === isSuspended) return job;
    const { observedGeneration, suspended } = object.status ?? {};
    if (observedGeneration !== object.metadata.generation) {
      return wanted ? this.#heddle.jobs.suspend(job.id) : this.#heddle.jobs.resume(job.id);
    }
    // A suspension that the spec asks for takes a while: the last status has not seen it yet.
    if (suspended !== isSuspended && (isSuspended || suspended === true)) {
      await api.patch(object, { spec: { suspend: isSuspended } });
    }
    return job;
  }

  async #announce(
    object: TrainingJobObject,
    { phase, reason, message }: ReturnType<typeof statusOfJob>,
  ): Promise<void> {
    const type = phase === "Failed" ? "Warning" : "Normal";
    const text = [reason, message].filter(Boolean).join(": ") || `the job is ${phase}`;
    await this.#events.record(object, type, phase, text);
  }

  /** Deletes an object whose time after the end has passed. */
  async #expire(
    object: TrainingJobObject,
    api: Resources<TrainingJobObject>["api"],
  ): Promise<number | undefined> {
    const seconds = object.spec.ttl_seconds_after_finished;
    const endedAt = object.status?.completionTime;
    if (seconds === undefined || !endedAt) return undefined;
    const leftMs = Date.parse(endedAt) + seconds * 1_000 - Date.now();
    if (leftMs > 0) return Math.min(leftMs, 2 ** 31 - 1);
    await api.remove(object);
    return undefined;
  }
}
