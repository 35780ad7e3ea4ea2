import { CLUSTER_SETTINGS } from "@heddle/contracts/settings";
import type { CommitPlanCommand } from "@heddle/control/jobs/commands";
import { RECOVERY_SUFFIX } from "@heddle/control/jobs/plan-commit";
import {
  queuedJob,
  type SchedulingView,
  schedulingInput,
} from "@heddle/control/jobs/scheduling-input";
import { algorithmFault } from "@heddle/control/jobs/task-request";
import { neverFits } from "@heddle/scheduler/explain";
import type { Blocker, Plan, ProjectState, QueuedJob } from "@heddle/scheduler/model";
import { schedule } from "@heddle/scheduler/schedule";
import { propose } from "../control/propose.ts";
import type { ControlPlane } from "../ports.ts";
import { blockerText } from "./explanation-view.ts";
import type { PlanBook } from "./plan-book.ts";

/** A promise that moves by less is not written anew. */
const PROMISE_SLACK_MS = 10_000;
/** Starts in one entry of the log; a longer plan goes in several, which do not need each other. */
const MAX_STARTS = 500;

export interface SchedulingStepOptions {
  readonly control: ControlPlane;
  readonly plans: PlanBook;
  /** How long workers may take to acknowledge their leases. */
  readonly acknowledgeMs: number;
}

/** Makes one plan of the state as it is and proposes what it changes. Returns when to look again. */
export async function schedulingStep(options: SchedulingStepOptions): Promise<number | undefined> {
  const { control, plans } = options;
  const nowMs = Date.now();
  const startedMs = performance.now();
  const { state, jobs, appliedIndex } = control;
  const seen = schedulingInput(state, jobs, { index: appliedIndex, nowMs });
  const { view, unsatisfiable, admitted } = admit(control, seen);
  const plan = schedule(view.input);
  plans.publish(view, plan);
  const command = commandOf(options, plan, { admitted, unsatisfiable, nowMs });
  const durationMs = performance.now() - startedMs;
  plans.rounds.record({ durationMs, starts: command.starts.length });
  if (changesSomething(control, command)) {
    await Promise.all(entriesOf(command).map((entry) => propose(control, entry)));
  }
  return nextLookMs(view);
}

interface Admission {
  readonly view: SchedulingView;
  readonly admitted: readonly string[];
  readonly unsatisfiable: CommitPlanCommand["unsatisfiable"];
}

/** Tells accepted jobs that may run one day from those that never will. */
function admit(control: ControlPlane, view: SchedulingView): Admission {
  const { state, jobs } = control;
  const { input } = view;
  const isAccepted = (id: string) => state.jobs.get(id)?.state === "accepted";
  const judged = new Map<string, readonly Blocker[]>();
  const unsatisfiable: { jobId: string; message: string }[] = [];
  const sharedGb =
    state.settings.get("shared_storage_gb")?.value ?? CLUSTER_SETTINGS.shared_storage_gb.default;
  for (const { jobId, blockers } of view.withheld) {
    const wanted = state.specs.get(jobId)?.resources.shared_storage_gb ?? 0;
    if (wanted <= sharedGb || !isAccepted(jobId)) continue;
    unsatisfiable.push({ jobId, message: neverText(blockers) });
  }
  const quotas = quotaKeys(input.snapshot.projects);
  // A cluster that no node has joined yet says nothing of what will fit.
  const withheld = view.withheld.map(({ jobId }) => {
    return queuedJob(state, jobs, state.jobs.get(jobId)!);
  });
  for (const job of input.snapshot.nodes.length > 0 ? [...input.queue, ...withheld] : []) {
    if (!isAccepted(job.id)) continue;
    const request = jobs.requestOf(state.jobs.get(job.id)!);
    const blockers = judge(input, job, judged, quotas, request);
    if (blockers.length === 0) continue;
    const message = algorithmFault(state, job.id) ?? neverText(blockers);
    unsatisfiable.push({ jobId: job.id, message });
  }
  const never = new Set(unsatisfiable.map(({ jobId }) => jobId));
  const queue = input.queue.filter(({ id }) => !never.has(id));
  const waiting = [...queue.map(({ id }) => id), ...view.withheld.map(({ jobId }) => jobId)];
  const admitted = waiting.filter((id) => isAccepted(id) && !never.has(id));
  return { view: { ...view, input: { ...input, queue } }, admitted, unsatisfiable };
}

/** The projects that have a quota, with what tells quotas apart. */
function quotaKeys(projects: readonly ProjectState[]): ReadonlyMap<string, string> {
  return new Map(
    projects
      .filter(({ quota }) => Object.keys(quota).length > 0)
      .map(({ project, quota }) => [project, JSON.stringify(quota)]),
  );
}

const requestKeys = new WeakMap<object, string>();

/** Jobs alike in all that counts are judged once. */
function judge(
  input: SchedulingView["input"],
  job: QueuedJob,
  judged: Map<string, readonly Blocker[]>,
  quotas: ReadonlyMap<string, string>,
  request: object,
): readonly Blocker[] {
  const requestKey = requestKeys.get(request) ?? JSON.stringify(request);
  requestKeys.set(request, requestKey);
  const { tasks, sameRack, maxRuntimeMs } = job;
  const quota = quotas.get(job.project) ?? "";
  const key = `${requestKey} ${tasks} ${sameRack} ${quota && `${maxRuntimeMs} ${quota}`}`;
  const known = judged.get(key) ?? neverFits(input, job);
  judged.set(key, known);
  return known;
}

function neverText(blockers: readonly Blocker[]): string {
  return `it can never run here: ${blockers.map(blockerText).join("; ")}`;
}

function commandOf(
  { acknowledgeMs, control }: SchedulingStepOptions,
  plan: Plan,
  rest: Pick<CommitPlanCommand, "admitted" | "unsatisfiable"> & { readonly nowMs: number },
): CommitPlanCommand {
  const { admitted, unsatisfiable, nowMs } = rest;
  const { reservation } = plan;
  const isOfJob = reservation && !reservation.jobId.endsWith(RECOVERY_SUFFIX);
  return {
    type: "plan.commit",
    atMs: nowMs,
    basedOnIndex: plan.basedOnIndex,
    overcommitRatio:
      control.state.settings.get("overcommit_ratio")?.value ??
      CLUSTER_SETTINGS.overcommit_ratio.default,
    acknowledgeMs,
    admitted,
    unsatisfiable,
    starts: plan.starts.map(({ jobId, placements }) => ({ jobId, placements })),
    preemptions: plan.preemptions.map(({ victimId, forJobId }) => ({ victimId, forJobId })),
    expired: plan.expired,
    promise: isOfJob
      ? { jobId: reservation.jobId, startAtMs: Math.ceil(reservation.startAtMs) }
      : undefined,
  };
}

/** The plan as entries of the log: the first has everything but the further starts. */
function entriesOf(command: CommitPlanCommand): CommitPlanCommand[] {
  const { starts } = command;
  const entries = [{ ...command, starts: starts.slice(0, MAX_STARTS) }];
  const rest = { ...command, admitted: [], unsatisfiable: [], preemptions: [], expired: [] };
  for (let from = MAX_STARTS; from < starts.length; from += MAX_STARTS) {
    entries.push({ ...rest, starts: starts.slice(from, from + MAX_STARTS) });
  }
  return entries;
}

function changesSomething({ state, jobs }: ControlPlane, command: CommitPlanCommand): boolean {
  const { admitted, unsatisfiable, starts, preemptions, expired, promise } = command;
  const lists = [admitted, unsatisfiable, starts, preemptions, expired];
  if (lists.some(({ length }) => length > 0)) return true;
  if (promise?.jobId !== jobs.promised) return true;
  const held = state.jobs.get(jobs.promised ?? "")?.promisedStartMs;
  if (promise === undefined || held === undefined) return false;
  return Math.abs(promise.startAtMs - held) > PROMISE_SLACK_MS;
}

/** The next moment at which time alone changes what a plan says: a backoff or a bound is over. */
function nextLookMs({ input }: SchedulingView): number | undefined {
  const { nowMs, queue, snapshot, settings } = input;
  let next = Number.POSITIVE_INFINITY;
  for (const { notBeforeMs } of queue) {
    if (notBeforeMs > nowMs) next = Math.min(next, notBeforeMs);
  }
  for (const { kind, startedAtMs, maxRuntimeMs, evicting } of snapshot.running) {
    if (kind === "serving" || evicting) continue;
    const boundMs = Math.min(maxRuntimeMs ?? settings.jobTimeoutMs, settings.jobTimeoutMs);
    next = Math.min(next, startedAtMs + boundMs);
  }
  return Number.isFinite(next) ? Math.max(next, nowMs) : undefined;
}
