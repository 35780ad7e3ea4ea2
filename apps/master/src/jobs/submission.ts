import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/jobs";
import { CLUSTER_SETTINGS } from "@heddle/contracts/settings";
import { type TrainingFault, trainingFaults } from "@heddle/contracts/training";
import { RequestFaults, validate } from "@heddle/contracts/validation";
import { offerFaults } from "@heddle/control/jobs/offer-faults";
import { registrationOf } from "@heddle/control/jobs/registration";
import { queuedFrom } from "@heddle/control/jobs/scheduling-input";
import { ShardRoom, shardFaults } from "@heddle/control/jobs/shard-places";
import type { SpecChange } from "@heddle/control/jobs/spec-changes";
import { specFaults } from "@heddle/control/jobs/spec-faults";
import { checkSubmission } from "@heddle/control/jobs/submission";
import { executorOf, fewestTasks, taskRequest } from "@heddle/control/jobs/task-request";
import type { ControlState } from "@heddle/control/state";
import type { Blocker } from "@heddle/scheduler/model";
import { refusalError } from "../control/propose.ts";
import type { RequestedChange } from "../http/idempotent-changes.ts";
import type { ControlPlane } from "../ports.ts";
import { viewBlocker, viewExplanation } from "./explanation-view.ts";
import { newJobId } from "./job-id.ts";
import type { PlanBook } from "./plan-book.ts";
import { sharedStorageUsedGb } from "./task-uses.ts";

/** What POST /jobs answers with. */
export interface SubmittedJob {
  readonly job_id: string;
  readonly state: "accepted";
  readonly submitted_at: string;
}

/** The change that a body of POST /jobs asks for. Throws with all that is wrong with it. */
export function requestedSubmission(
  body: unknown,
  submitter: Submitter,
): RequestedChange<SubmittedJob> {
  const { id, ...spec } = readSpec(body, submitter);
  checkModel(spec, submitter);
  const atMs = Date.now();
  const jobId = id ?? newJobId(atMs);
  const told = { job_id: jobId, state: "accepted", submitted_at: new Date(atMs).toISOString() };
  const command = { type: "job.submit" as const, atMs, jobId, spec };
  return { command, told: told as SubmittedJob };
}

/** Who submits, and the workers, parameter servers and models that there are. */
export interface Submitter extends Pick<ControlState, "nodes" | "servers" | "models"> {
  readonly scopes: readonly string[];
}

/** A job that is to be served needs a name that is free, and a key that may deploy. */
function checkModel(
  spec: SubmitJob,
  { scopes, models }: Pick<Submitter, "scopes" | "models">,
): void {
  const wanted = registrationOf(spec);
  if (!wanted) return;
  const param = "config.register_as";
  if (!grants(scopes, "models:deploy")) {
    const message = "The API key lacks the permission models:deploy, which `register_as` needs.";
    throw new AppError("permission_denied", message, { param });
  }
  const known = models.get(wanted.modelId);
  if (!known || (wanted.replaces && known.lineage)) return;
  const how = known.lineage
    ? "Choose another id, or set `config.replace_model` to have it replaced."
    : "No job has trained it, and so none can replace it: choose another id.";
  const message = `Invalid value for '${param}': the model ${wanted.modelId} is registered. ${how}`;
  throw new AppError("conflict", message, { param });
}

function readSpec(
  body: unknown,
  { nodes, servers }: Pick<ControlState, "nodes" | "servers">,
): SubmitJob {
  const spec = validate(submitJobRequest, body);
  const code = "invalid_value" as const;
  const config = configFaults(spec);
  // A number that is none is told once.
  const shards = config.length === 0 ? shardFaults(spec, servers) : [];
  const faults = [
    ...[...specFaults(spec), ...offerFaults(spec, nodes), ...shards].map(({ param, detail }) => {
      return { param, code, message: `Invalid value for '${param}': ${detail}.` };
    }),
    ...config.map(({ param, detail: message }) => ({ param, code, message })),
  ];
  const [first] = faults;
  if (!first) return spec;
  const cause = new RequestFaults(faults);
  throw new AppError("unprocessable", first.message, { param: first.param, cause });
}

/** What is wrong with the hyperparameters of a job that our own trainer runs. */
function configFaults(spec: SubmitJob): TrainingFault[] {
  const { algorithm, config } = spec;
  if (algorithm === undefined || executorOf(spec) !== "training") return [];
  return trainingFaults(algorithm, config, spec.tasks);
}

/** What would become of the job if it were submitted now; nothing is changed. */
export function dryRun(
  control: ControlPlane,
  plans: PlanBook,
  body: unknown,
  scopes: readonly string[],
) {
  const { id, ...spec } = readSpec(body, control.state);
  checkModel(spec, { scopes, models: control.state.models });
  const jobId = id ?? newJobId(Date.now());
  const checked = checkSubmission({ state: control.state, index: control.jobs }, { jobId, spec });
  if (!checked.ok) throw refusalError(checked.refusal);
  const tasks = spec.tasks ?? fewestTasks(spec, control.state.nodes.values());
  const { project, queue } = spec;
  const { waitingFor } = checked;
  const job = { id: jobId, project, queue, tasks, submittedAtMs: Date.now(), waitingFor };
  const queued = queuedFrom(spec, job, taskRequest(spec, tasks));
  const storage = storageBlocker(control, spec);
  const isNever = storage !== undefined && storage.requested > storage.limit;
  const { plan, explanation, neverFits } = plans.tryOut(queued, spec);
  const never = [...neverFits, ...(isNever ? [storage] : [])];
  const shards = new ShardRoom(control.state, control.jobs).take(spec);
  const planned = plan.starts.find((each) => each.jobId === jobId);
  const start = storage || shards ? undefined : planned;
  const fits = start ? "would_start" : "would_wait";
  const lacking = [storage, shards].filter((blocker) => blocker !== undefined);
  const blockers = [...lacking, ...explanation.blockers];
  const others = storage ? storageChange(storage, planned !== undefined && !shards) : [];
  const changes = lacking.length > 0 ? others : explanation.changes;
  return {
    object: "dry_run",
    verdict: never.length > 0 ? "unsatisfiable" : fits,
    tasks,
    placement: (start?.placements ?? []).map(({ nodeId, devices }, rank) => {
      return { rank, node: nodeId, devices };
    }),
    never_fits: never.map(viewBlocker),
    explanation: viewExplanation({ ...explanation, blockers, changes }),
  };
}

/** What is left of the shared storage, where that alone holds the job back. */
function storageChange({ resource, requested, free }: Blocker, isAll: boolean): SpecChange[] {
  if (!isAll) return [];
  const cost = (requested - free) / requested;
  return [{ field: resource, from: requested, to: free > 0 ? free : null, cost }];
}

/** The storage that belongs to no node is no matter of placement: the scheduler does not see it. */
function storageBlocker(control: ControlPlane, { resources }: SubmitJob): Blocker | undefined {
  const requested = resources.shared_storage_gb ?? 0;
  const limit =
    control.state.settings.get("shared_storage_gb")?.value ??
    CLUSTER_SETTINGS.shared_storage_gb.default;
  const free = Math.max(0, limit - sharedStorageUsedGb(control));
  if (requested <= free) return undefined;
  return { reason: "InsufficientMemory", resource: "shared_storage_gb", requested, free, limit };
}
