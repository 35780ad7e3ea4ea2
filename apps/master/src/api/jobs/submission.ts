import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import type { DryRun, SubmittedJob } from "@heddle/contracts/api/job-replies";
import {
  GENERATED_CHARACTERS,
  generateNameRequest,
  type SubmitJob,
} from "@heddle/contracts/api/job-spec";
import { validate } from "@heddle/contracts/validation";
import { RUNS_BLOCKS, TAKES_INPUTS, versionOf } from "@heddle/control/cluster-version";
import { checkSubmission } from "@heddle/control/jobs/commands/submission";
import { registrationOf } from "@heddle/control/jobs/records/model-registration";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { executorOf, fewestTasks, taskRequest } from "@heddle/control/jobs/records/task-request";
import { queuedFrom } from "@heddle/control/jobs/scheduling/scheduling-input";
import { modelIn } from "@heddle/control/model-names";
import type { ControlState } from "@heddle/control/state";
import type { TraceContext } from "@heddle/observability/tracing/trace-context";
import { isSameEntry, jobEntry } from "@heddle/scheduler/plan-entry";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { refusalError } from "../../control-plane/propose.ts";
import type { RequestedChange } from "../../http/idempotent-changes.ts";
import { type Caller, callerText, seenJobs } from "../../http/identity/caller.ts";
import { requireListed } from "../../models/model-catalog.ts";
import { viewBlocker, viewExplanation } from "../../orchestration/scheduling/explanation-view.ts";
import type { JobExplainer } from "../../orchestration/scheduling/job-explainer.ts";
import { checkKeepsSecrets } from "../secrets/secrets.controller.ts";
import { requireInProject } from "./job-access.ts";
import { isJobId, newJobId } from "./job-id.ts";
import type { PluginConfigs } from "./plugin-configs.ts";
import { readSpec } from "./read-spec.ts";
import { tracedSpec } from "./traced-spec.ts";

/** The change that a body of POST /jobs requests. Throws with all its faults. */
export function requestedSubmission(
  body: Record<string, unknown>,
  submitter: Submitter,
): RequestedChange<SubmittedJob> {
  const atMs = Date.now();
  const made = newJobId(atMs);
  const { id, ...checked } = checkedSpec(body, submitter, made);
  const jobId = id ?? made;
  const spec = tracedSpec(checked, { ...submitter, jobId, isIdGiven: id !== undefined });
  const answer = submitted({ id: jobId, state: "accepted", submittedAtMs: atMs });
  return { command: { type: "job.submit", atMs, jobId, spec }, answer };
}

/** The spec, if the submitter may submit it; its project is by default the submitter's. */
export function checkedSpec(
  body: Record<string, unknown>,
  submitter: Submitter,
  madeId = newJobId(Date.now()),
) {
  const { project } = submitter.caller;
  const read = readSpec({ project, ...withName(body, madeId) }, submitter);
  const spec = asOneTask(afterInputs(read, submitter), submitter);
  requireInProject(submitter.caller, "jobs:create", spec.project, "project");
  checkSecrets(spec, submitter);
  checkDependencies(spec, submitter);
  checkPrivileges(spec, submitter);
  checkModel(spec, submitter);
  return spec;
}

/** A job that names a secret may print it, so that needs a permission of its own. */
function checkSecrets(
  { project, secret_variables: named = {} }: SubmitJob,
  { caller, cluster }: Pick<Submitter, "caller" | "cluster">,
): void {
  if (Object.keys(named).length === 0) return;
  checkKeepsSecrets({ cluster });
  requireInProject(caller, "secrets:use", project, "secret_variables");
}

/**
 * A job waits for the jobs whose artifacts it starts with. Throws `unavailable` while a master that
 * may become the leader would start the job without them.
 */
function afterInputs(spec: SubmitJob, { cluster }: Pick<Submitter, "cluster">): SubmitJob {
  if ((spec.inputs?.length || spec.when?.length) && versionOf({ cluster }) < TAKES_INPUTS) {
    const param = spec.inputs?.length ? "inputs" : "when";
    const message = `The masters know no \`${param}\` of jobs yet: that begins when all of them run this build.`;
    throw new AppError("unavailable", message, { param });
  }
  const jobs = (spec.inputs ?? []).flatMap(({ job }) => job ?? []);
  return jobs.length === 0
    ? spec
    : { ...spec, dependencies: [...new Set([...spec.dependencies, ...jobs])] };
}

/**
 * A plugin's block is one task. Throws `unavailable` while a master that may become the leader would take
 * it for a training algorithm.
 */
function asOneTask(spec: SubmitJob, { cluster }: Pick<Submitter, "cluster">): SubmitJob {
  if (executorOf(spec) !== "block") return spec;
  if (versionOf({ cluster }) < RUNS_BLOCKS) {
    const message =
      "The masters run no blocks of plugins yet: that begins when all of them run this build.";
    throw new AppError("unavailable", message, { param: "algorithm" });
  }
  if (spec.tasks === undefined || spec.tasks === 1) return { ...spec, tasks: 1 };
  const message = `Invalid value for 'tasks': a plugin's block is one task, got ${spec.tasks}; steps of pipelines have \`shards\`.`;
  throw new AppError("unprocessable", message, { param: "tasks" });
}

/**
 * A caller of projects depends only on jobs that it sees. The refusal is the same for ids of other
 * projects' jobs and for unknown ones.
 */
function checkDependencies(
  { dependencies }: SubmitJob,
  { jobs, caller }: Pick<Submitter, "jobs" | "caller">,
): void {
  const sees = seenJobs(caller, { jobs });
  if (!sees) return;
  for (const [at, id] of dependencies.entries()) {
    if (!isJobId(id) || sees(id)) continue;
    const param = `dependencies[${at}]`;
    throw new AppError("unprocessable", `Invalid value for '${param}': no job has the id ${id}.`, {
      param,
    });
  }
}

/**
 * Replaces `generate_name` by a name: the prefix and the end of the job's id. A repeated body with
 * an `id` gets the same name.
 */
function withName(body: Record<string, unknown>, madeId: string): Record<string, unknown> {
  if (!Object.hasOwn(body, "generate_name")) return body;
  const { generate_name } = validate(generateNameRequest, body);
  const { generate_name: _, ...rest } = body;
  const id = typeof body["id"] === "string" ? body["id"] : madeId;
  return { ...rest, name: `${generate_name}${id.slice(-GENERATED_CHARACTERS).toLowerCase()}` };
}

/** The answer for a committed job. */
export function submitted({
  id,
  state,
  submittedAtMs,
}: Pick<JobRecord, "id" | "state" | "submittedAtMs">): SubmittedJob {
  return { job_id: id, state, submitted_at: new Date(submittedAtMs).toISOString() };
}

/** Who submits, and the state that the job depends on. */
export interface Submitter
  extends Pick<ControlState, "nodes" | "servers" | "models" | "jobs" | "specs" | "cluster"> {
  readonly caller: Caller;
  /** The span that the caller names, if any. */
  readonly trace?: TraceContext | undefined;
  readonly pluginConfigs: PluginConfigs;
}

/** The node's network reaches its loopback, like the node's other processes. */
function checkPrivileges(spec: SubmitJob, { caller }: Pick<Submitter, "caller">): void {
  if (spec.container_options?.network !== "host" || grants(caller.scopes, "jobs:privileged"))
    return;
  const message = `${callerText(caller)} lacks the permission jobs:privileged, which the network \`host\` of a container needs.`;
  throw new AppError("permission_denied", message, { param: "container_options.network" });
}

/** A job with a model to serve needs a free id, and a key that may deploy. */
function checkModel(
  spec: SubmitJob,
  { caller, ...state }: Pick<Submitter, "caller" | "models" | "cluster">,
): void {
  const wanted = registrationOf(spec);
  if (!wanted) return;
  const param = "config.register_as";
  if (!grants(caller.scopes, "models:deploy")) {
    const message = `${callerText(caller)} lacks the permission models:deploy, which \`register_as\` needs.`;
    throw new AppError("permission_denied", message, { param });
  }
  requireListed(wanted.modelId, caller, param);
  const known = modelIn(state, wanted.modelId, spec.project);
  const isOwn = known?.lineage?.project === spec.project;
  if (!known || (wanted.replaces && isOwn)) return;
  const how = isOwn
    ? "Choose another id, or set `config.replace_model` to have it replaced."
    : `No job${known.lineage ? " of this project" : ""} has trained it, and so none can replace it: choose another id.`;
  const message = `Invalid value for '${param}': the model ${wanted.modelId} is registered. ${how}`;
  throw new AppError("conflict", message, { param });
}

/** The outcome of submitting the job now, without a change. */
export async function dryRun(
  control: ControlPlane,
  explainer: JobExplainer,
  body: Record<string, unknown>,
  submitter: Submitter,
): Promise<DryRun> {
  const made = newJobId(Date.now());
  const { id, ...spec } = checkedSpec(body, submitter, made);
  const jobId = id ?? made;
  const { state, jobs: index } = control;
  const version = versionOf(state);
  const checked = checkSubmission({ state, index, version }, { jobId, spec });
  if (!checked.ok) throw refusalError(checked.refusal);
  const tasks = spec.tasks ?? fewestTasks(spec, control.state.nodes.values());
  const { project, queue } = spec;
  const { waitingFor } = checked;
  const job = { project, queue, tasks, submittedAtMs: Date.now(), waitingFor };
  const queued = queuedFrom(jobEntry(jobId), spec, job, taskRequest(spec, tasks));
  const { plan, explanation, neverFits } = await explainer.dryRun(queued, spec);
  const start = plan.starts.find(({ entry }) => isSameEntry(entry, queued.entry));
  const fits = start ? "would_start" : "would_wait";
  return {
    object: "dry_run",
    verdict: neverFits.length > 0 ? "unsatisfiable" : fits,
    tasks,
    placement: (start?.placements ?? []).map(({ nodeId, devices }, rank) => {
      const name = control.state.nodes.get(nodeId)?.offer.name ?? null;
      return { rank, node: nodeId, node_name: name, devices };
    }),
    never_fits: neverFits.map(viewBlocker),
    explanation: viewExplanation(explanation),
  };
}
