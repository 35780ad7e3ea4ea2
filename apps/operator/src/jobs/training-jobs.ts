import type { Heddle } from "@heddle/client/heddle";
import type { Job } from "@heddle/contracts/api/job-replies";
import { JOB_STATES } from "@heddle/contracts/api/job-spec";
import { TRAINING_JOB } from "@heddle/contracts/kubernetes/custom-resources";
import { RESOURCE_GROUP } from "@heddle/contracts/kubernetes/resource-kind";
import {
  addFinalizer,
  hasFinalizer,
  isDeleting,
  removeFinalizer,
} from "../kubernetes/lifecycle.ts";
import { orNotFound } from "../kubernetes/refusal.ts";
import type { Reconciler, Resources } from "../kubernetes/resource-controller.ts";
import type { StatusWriter } from "../kubernetes/status-writer.ts";
import { jobIdOf, jobNameOf } from "./job-id.ts";
import { isEnded, isFinished, statusOfJob, type TrainingJobObject } from "./job-status.ts";
import type { JobSubmitter } from "./job-submitter.ts";
import type { KueueAdmission, KueueAnswer } from "./kueue-admission.ts";

/** On every job that the operator has submitted. */
const UID_LABEL = `${RESOURCE_GROUP}/uid`;
const LIVE = JOB_STATES.filter((state) => !isEnded({ state }));
/** Progress alone is shown this often. */
const PROGRESS_MS = 5_000;
const CANCELLING_MS = 1_000;
/** How often the Workload of a job that waits or runs is read. */
const KUEUE_MS = 2_000;

/** TrainingJobs are jobs of the cluster, under an id that is derived from the object's uid. */
export class TrainingJobs implements Reconciler<TrainingJobObject> {
  readonly plural = TRAINING_JOB.plural;
  readonly #heddle: Heddle;
  readonly #statuses: StatusWriter;
  readonly #submitter: JobSubmitter;
  readonly #kueue: KueueAdmission | undefined;

  /** Without `kueue` its labels mean nothing. */
  constructor(
    heddle: Heddle,
    statuses: StatusWriter,
    submitter: JobSubmitter,
    kueue?: KueueAdmission,
  ) {
    this.#heddle = heddle;
    this.#statuses = statuses;
    this.#submitter = submitter;
    this.#kueue = kueue;
  }

  idOf({ metadata }: TrainingJobObject): string {
    return jobIdOf(metadata);
  }

  /** The live jobs; one that has ended is one that is missing. */
  async poll(): Promise<ReadonlyMap<string, string>> {
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
    resources: Resources<TrainingJobObject>,
  ): Promise<number | undefined> {
    const { api, expect } = resources;
    const id = jobIdOf(object.metadata);
    const job = await this.#find(id);
    if (isDeleting(object)) {
      if (!hasFinalizer(object)) return undefined;
      if (job && !isEnded(job)) return this.#cancel(job);
      await removeFinalizer(api, object);
      return undefined;
    }
    if (!job && isFinished(object)) return this.#expire(object, api);
    const answer = job && isEnded(job) ? undefined : await this.#kueue?.ask(object);
    if (!job && answer?.isAdmitted === false) return this.#waitForKueue(object, answer, api);
    // Nothing of a job that has ended has to be removed with its object.
    const owned = job && isEnded(job) ? object : await addFinalizer(resources, object);
    const present = job ?? (await this.#submit(owned, id, api));
    if (typeof present === "number") return present;
    const { job: followed, current } = await this.#followSuspension(owned, present, api, answer);
    const shown = followed === present ? present : ((await this.#find(id)) ?? present);
    const status = statusOfJob(shown, current);
    const written = await this.#statuses.show(api, current, status, object.status?.phase);
    if (isEnded(shown)) {
      await this.#kueue?.release(written);
      if (hasFinalizer(written)) await removeFinalizer(api, written);
      return this.#expire(written, api);
    }
    expect(id);
    return answer && KUEUE_MS;
  }

  async #waitForKueue(
    object: TrainingJobObject,
    { message }: KueueAnswer,
    api: Resources<TrainingJobObject>["api"],
  ): Promise<number> {
    const why = { reason: "KueueAdmission", message };
    const conditions = [{ type: "Accepted", status: "False" as const, ...why }];
    await this.#statuses.show(api, object, { phase: "Queued", ...why, conditions });
    return KUEUE_MS;
  }

  #find(id: string): Promise<Job | undefined> {
    return orNotFound(this.#heddle.jobs.get(id));
  }

  async #cancel(job: Job): Promise<number> {
    if (job.state !== "cancelling") await this.#heddle.jobs.cancel(job.id);
    return CANCELLING_MS;
  }

  /** Milliseconds where the cluster refuses the spec, which the object's conditions then say. */
  async #submit(
    object: TrainingJobObject,
    id: string,
    api: Resources<TrainingJobObject>["api"],
  ): Promise<Job | number> {
    const { suspend: _, ttl_seconds_after_finished: __, ...spec } = object.spec;
    const labels = { ...spec.labels, [UID_LABEL]: object.metadata.uid };
    const name = spec.name ?? jobNameOf(object.metadata);
    const job = { ...spec, id, name, labels };
    const message = await this.#submitter.submit(object.metadata.namespace, job);
    if (message !== undefined) {
      const refusal = { reason: "Refused", message, types: ["Accepted"] };
      return this.#statuses.refuse(api, object, refusal);
    }
    return this.#heddle.jobs.get(id, { consistency: "strong" });
  }

  /**
   * Both views show what was asked for last: a changed spec suspends or resumes the job, and
   * another client's suspension or resumption changes the spec. Resolves with the job and the
   * object as they are then.
   */
  async #followSuspension(
    current: TrainingJobObject,
    job: Job,
    api: Resources<TrainingJobObject>["api"],
    answer: KueueAnswer | undefined,
  ): Promise<{ readonly job: Job; readonly current: TrainingJobObject }> {
    const isAsked = current.spec.suspend ?? false;
    const isEvicted = !isAsked && answer?.isAdmitted === false;
    const wanted = isAsked || isEvicted;
    const isSuspended = job.state === "suspended";
    if (isEnded(job) || wanted === isSuspended) return { job, current };
    const { observedGeneration, suspended } = current.status ?? {};
    // Kueue takes admission away and gives it again without a change of the spec.
    const isKueues = isEvicted || (answer !== undefined && !isAsked && suspended === true);
    if (isKueues || observedGeneration !== current.metadata.generation) {
      const { jobs } = this.#heddle;
      const changed = wanted ? await jobs.suspend(job.id) : await jobs.resume(job.id);
      return { job: changed, current };
    }
    // A suspension that the spec asks for takes a while: the last status has not seen it yet.
    if (suspended !== isSuspended && (isSuspended || suspended === true)) {
      return { job, current: await api.patch(current, { spec: { suspend: isSuspended } }) };
    }
    return { job, current };
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
