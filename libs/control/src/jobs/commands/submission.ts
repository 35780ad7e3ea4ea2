import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { KEEPS_SECRETS, SCOPES_MODELS } from "../../cluster-version.ts";
import { ACCEPTED, type ControlReply, type Refusal, refuse } from "../../command.ts";
import { storageRefusal } from "../../project-storage.ts";
import { secretKey } from "../../secrets/records.ts";
import { BOUNDED_FROM, submissionRefusal } from "../../state-limits.ts";
import { messagesAt } from "../../state-messages.ts";
import { nameKey } from "../index/job-index.ts";
import type { SubmitJobCommand } from "../records/commands.ts";
import { isTerminal } from "../records/lifecycle.ts";
import { registrationOf } from "../records/model-registration.ts";
import type { JobRecord } from "../records/records.ts";
import { specFaults } from "../records/spec-faults.ts";
import { fewestTasks } from "../records/task-request.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

/** Live jobs at once. */
const MAX_LIVE_JOBS = 100_000;
const JOB_ID = /^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

/** Accepts a job. Repeating the submission succeeds and changes nothing. */
export function submitJob(change: JobsTransaction, command: SubmitJobCommand): ControlReply {
  const { jobId, spec } = command;
  const known = change.state.specs.get(jobId);
  if (known && JSON.stringify(known) === JSON.stringify(spec))
    return { ...ACCEPTED, wasThere: true };
  const checked = checkSubmission(change, command);
  if (!checked.ok) return checked.refusal;
  change.state.specs.set(jobId, spec);
  change.submit(newJob(change, command, checked.waitingFor));
  return ACCEPTED;
}

/** Whether the job would be accepted now, and what it would wait for. Changes nothing. */
export function checkSubmission(
  change: State,
  { jobId, spec }: Pick<SubmitJobCommand, "jobId" | "spec">,
):
  | { readonly ok: true; readonly waitingFor: readonly string[] }
  | { readonly ok: false; readonly refusal: Refusal } {
  const [fault] = specFaults(spec);
  const refusal =
    idRefusal(change, jobId) ??
    (fault && refuse("unprocessable", fault.detail, fault.param)) ??
    roomRefusal(change, spec) ??
    storageFull(change, spec) ??
    nameRefusal(change, spec) ??
    secretRefusal(change, spec) ??
    modelRefusal(change, spec);
  if (refusal) return { ok: false, refusal };
  const waitingFor = dependenciesOf(change, jobId, spec);
  if ("ok" in waitingFor) return { ok: false, refusal: waitingFor };
  return { ok: true, waitingFor };
}

type State = Pick<JobsTransaction, "state" | "index" | "version">;

function idRefusal({ state }: State, jobId: string): Refusal | undefined {
  if (!JOB_ID.test(jobId)) return refuse("invalid_value", "expected `job_` and a ULID", "id");
  if (!state.specs.has(jobId)) return undefined;
  return refuse("conflict", `the job ${jobId} exists with another spec`, "id");
}

function newJob(
  { state, now }: JobsTransaction,
  { jobId, spec }: SubmitJobCommand,
  waitingFor: readonly string[],
): JobRecord {
  return {
    id: jobId,
    name: spec.name,
    project: spec.project,
    queue: spec.queue,
    state: "accepted",
    submittedIndex: now.index,
    submittedAtMs: now.atMs,
    changedIndex: now.index,
    sinceMs: now.atMs,
    tasks: spec.tasks ?? fewestTasks(spec, state.nodes.values()),
    attempt: 0,
    failures: 0,
    losses: 0,
    preemptions: 0,
    liveTasks: 0,
    waitingFor,
  };
}

function roomRefusal({ state, index, version }: State, spec: SubmitJob): Refusal | undefined {
  const { queue } = spec;
  if (index.live.size >= MAX_LIVE_JOBS) {
    return refuse("overloaded", `the cluster holds ${MAX_LIVE_JOBS} jobs that have not ended`);
  }
  const known = state.queues.get(queue);
  if (!known && queue !== "default") {
    return refuse(
      "unprocessable",
      `no queue has the name ${queue}; PUT /queues makes one`,
      "queue",
    );
  }
  const length = index.queueLengths.get(queue) ?? 0;
  if (known?.maxLength === undefined || length < known.maxLength) {
    return version >= BOUNDED_FROM ? submissionRefusal({ state, index, version }, spec) : undefined;
  }
  const message = messagesAt(version).fullQueue(queue, length, known.maxLength);
  return refuse("insufficient_quota", message, "queue");
}

/** A job leaves at least one byte; how many more is known at its end. */
function storageFull({ state, index, version }: State, { project }: SubmitJob) {
  const { projects } = state;
  const refusal = storageRefusal({ projects, storage: index.storage, version }, project, 1);
  return refusal && { ...refusal, param: "project" };
}

function nameRefusal({ state, index }: State, spec: SubmitJob): Refusal | undefined {
  const holder = state.jobs.get(index.byName.get(nameKey(spec)) ?? "");
  if (!holder || isTerminal(holder.state)) return undefined;
  const message = `the job ${holder.id} of the project ${spec.project} has the name ${spec.name} and has not ended`;
  return refuse("conflict", message, "name");
}

function secretRefusal({ state, version }: State, spec: SubmitJob): Refusal | undefined {
  if (version < KEEPS_SECRETS) return undefined;
  for (const [variable, name] of Object.entries(spec.secret_variables ?? {})) {
    if (state.secrets.has(secretKey({ project: spec.project, name }))) continue;
    const message = `no secret of the project ${spec.project} has the name ${name}`;
    return refuse("unprocessable", message, `secret_variables.${variable}`);
  }
  return undefined;
}

/** With two such jobs, chance would decide which of their models is served. */
function modelRefusal({ state, index, version }: State, spec: SubmitJob): Refusal | undefined {
  const registration = registrationOf(spec);
  if (!registration) return undefined;
  for (const id of [...index.live, ...index.unregistered]) {
    const other = state.specs.get(id)!;
    if (registrationOf(other)?.modelId !== registration.modelId) continue;
    if (version >= SCOPES_MODELS && other.project !== spec.project) continue;
    const message = `the job ${id} is to be registered as ${registration.modelId} too`;
    return refuse("conflict", message, "config.register_as");
  }
  return undefined;
}

/** The ids of the dependencies that have not succeeded, or why they are invalid. */
function dependenciesOf(
  change: State,
  jobId: string,
  spec: SubmitJob,
): readonly string[] | Refusal {
  const { state, index } = change;
  const waitingFor = new Set<string>();
  for (const [at, dependency] of spec.dependencies.entries()) {
    const param = `dependencies[${at}]`;
    const named = index.byName.get(nameKey({ project: spec.project, name: dependency }));
    const own = dependency === spec.name ? jobId : undefined;
    // A name means the latest ended job of that name, if there is one.
    const id = JOB_ID.test(dependency) ? dependency : (named ?? own);
    if (id === undefined) {
      const message = `no job of the project ${spec.project} has the name ${dependency}`;
      return refuse("unprocessable", message, param);
    }
    const job = state.jobs.get(id);
    if (job?.state === "succeeded") continue;
    if (job && isTerminal(job.state)) {
      return refuse("unprocessable", `the job ${id} is ${job.state} and cannot succeed`, param);
    }
    if (id === jobId) {
      const message = `the job ${spec.name} would wait for itself: leave out the dependency ${dependency}`;
      return refuse("unprocessable", message, param);
    }
    const cycle = pathTo(change, id, jobId);
    if (cycle) {
      const path = [jobId, ...cycle].join(" -> ");
      return refuse("unprocessable", `the dependencies form a cycle: ${path}`, param);
    }
    waitingFor.add(id);
  }
  return [...waitingFor];
}

/** The path of dependencies from one job to another, both included. */
function pathTo({ state }: State, from: string, target: string): readonly string[] | undefined {
  const cameFrom = new Map<string, string | undefined>([[from, undefined]]);
  for (const id of cameFrom.keys()) {
    if (id === target) {
      const path = [id];
      for (let at = cameFrom.get(id); at !== undefined; at = cameFrom.get(at)) path.unshift(at);
      return path;
    }
    for (const next of state.jobs.get(id)?.waitingFor ?? []) {
      if (!cameFrom.has(next)) cameFrom.set(next, id);
    }
  }
  return undefined;
}
