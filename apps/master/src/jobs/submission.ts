import { AppError } from "@heddle/base/errors";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/jobs";
import { CLUSTER_SETTINGS } from "@heddle/contracts/settings";
import { RequestFaults, validate } from "@heddle/contracts/validation";
import { queuedFrom } from "@heddle/control/jobs/scheduling-input";
import { specFaults } from "@heddle/control/jobs/spec-faults";
import { checkSubmission } from "@heddle/control/jobs/submission";
import { fewestTasks, taskRequest } from "@heddle/control/jobs/task-request";
import { neverFits } from "@heddle/scheduler/explain";
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
export function requestedSubmission(body: unknown): RequestedChange<SubmittedJob> {
  const { id, ...spec } = readSpec(body);
  const atMs = Date.now();
  const jobId = id ?? newJobId(atMs);
  const told = { job_id: jobId, state: "accepted", submitted_at: new Date(atMs).toISOString() };
  const command = { type: "job.submit" as const, atMs, jobId, spec };
  return { command, told: told as SubmittedJob };
}

function readSpec(body: unknown): SubmitJob {
  const spec = validate(submitJobRequest, body);
  const faults = specFaults(spec).map(({ param, detail }) => ({
    param,
    code: "invalid_value" as const,
    message: `Invalid value for '${param}': ${detail}.`,
  }));
  const [first] = faults;
  if (!first) return spec;
  const cause = new RequestFaults(faults);
  throw new AppError("unprocessable", first.message, { param: first.param, cause });
}

/** What would become of the job if it were submitted now; nothing is changed. */
export function dryRun(control: ControlPlane, plans: PlanBook, body: unknown) {
  const { id, ...spec } = readSpec(body);
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
  const never = [...neverFits(plans.view.input, queued), ...(isNever ? [storage] : [])];
  const { plan, explanation } = plans.tryOut(queued);
  const planned = plan.starts.find((each) => each.jobId === jobId);
  const start = storage === undefined ? planned : undefined;
  const fits = start ? "would_start" : "would_wait";
  const blockers = [...explanation.blockers, ...(storage ? [storage] : [])];
  return {
    object: "dry_run",
    verdict: never.length > 0 ? "unsatisfiable" : fits,
    tasks,
    placement: (start?.placements ?? []).map(({ nodeId, devices }, rank) => {
      return { rank, node: nodeId, devices };
    }),
    never_fits: never.map(viewBlocker),
    explanation: viewExplanation({ ...explanation, blockers }),
  };
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
