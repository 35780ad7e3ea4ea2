import { setImmediate as nextTurn } from "node:timers/promises";
import type { Steps } from "@heddle/base/async/steps";
import { settingValue } from "@heddle/contracts/api/settings";
import type { CommitPlanCommand, RankedJob } from "@heddle/control/jobs/records/commands";
import { readEntry } from "@heddle/control/jobs/records/logged-plan";
import { reservationOf } from "@heddle/control/jobs/records/renamed-fields";
import { algorithmFault } from "@heddle/control/jobs/records/task-request";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import type { Blocker, Plan, QueuedJob } from "@heddle/scheduler/model";
import { isSameEntry } from "@heddle/scheduler/plan-entry";
import { decideInSteps } from "@heddle/scheduler/schedule";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { propose } from "../../control-plane/propose.ts";
import { blockerText } from "./explanation-view.ts";
import type { RefusedEntry } from "./plan-refusals.ts";
import type { Scheduling } from "./scheduling.ts";

/** A reservation that moves by less is not written again. */
const RESERVATION_SLACK_MS = 10_000;
/** Starts, and tasks of them, in one entry of the log; a longer plan goes in several, one at a time. */
const MAX_STARTS = 500;
const MAX_TASKS = 4_096;

export interface SchedulingStepOptions
  extends Pick<Scheduling, "cache" | "plans" | "cycles" | "placement"> {
  readonly control: ControlPlane;
  /** How long workers may take to acknowledge their leases. */
  readonly acknowledgeMs: number;
}

/** Makes one plan of the state as it is and proposes what it changes. Returns when to plan again. */
export async function schedulingStep(options: SchedulingStepOptions): Promise<number | undefined> {
  const { control, cache } = options;
  const { command, nextMs } = await cache.work.run(() => planInSteps(options), true);
  if (changesSomething(control, command)) await commit(options, command);
  return nextMs;
}

interface Planned {
  readonly command: CommitPlanCommand;
  readonly nextMs: number | undefined;
}

function* planInSteps(options: SchedulingStepOptions): Steps<Planned> {
  const { cache, plans, cycles, placement } = options;
  const startedMs = performance.now();
  const nowMs = cache.nowMs();
  const { unsatisfiable, admitted, recheckAtMs, ...rest } = yield* admit(
    options,
    cache.snapshot(nowMs),
  );
  // What plugins exclude may change: no job is refused for good by it.
  const queue = placement.applied(rest.snapshot.queue, nowMs);
  const snapshot = { ...rest.snapshot, queue };
  const plan = yield* decideInSteps(snapshot);
  plans.publish(snapshot, plan);
  const nextMs = nextPollMs(snapshot, recheckAtMs);
  const command = commandOf(options, snapshot, plan, { admitted, unsatisfiable });
  const durationMs = performance.now() - startedMs;
  cycles.record({ durationMs, starts: command.starts.length });
  yield;
  return { command, nextMs };
}

/** Proposes the plan and remembers what apply refused of it. */
async function commit(
  { control, cache }: SchedulingStepOptions,
  command: CommitPlanCommand,
): Promise<void> {
  const refused: RefusedEntry[] = [];
  for (const part of entriesOf(command)) {
    const reply = await propose(control, part);
    for (const each of reply.refused ?? []) refused.push({ entry: readEntry(each), why: each.why });
    // Applying one entry may take most of a turn's budget, so other work runs between two.
    await nextTurn();
  }
  const planned = [
    ...command.starts.map(({ entry }) => entry),
    ...command.preemptions.map(({ forEntry }) => forEntry),
  ];
  cache.refusals.record(planned, refused, cache.nowMs());
}

interface AdmittedJobs {
  readonly snapshot: SchedulingSnapshot;
  readonly admitted: readonly string[];
  readonly unsatisfiable: CommitPlanCommand["unsatisfiable"];
  /** When the first of those fails that wait for other nodes; Infinity where none does. */
  readonly recheckAtMs: number;
}

/**
 * Divides the accepted jobs into those that may run one day and those that never will. Those that no
 * present node can run stay accepted as long as a setting says.
 */
function* admit(
  { control, cache }: SchedulingStepOptions,
  snapshot: SchedulingSnapshot,
): Steps<AdmittedJobs> {
  const { state } = control;
  const isAccepted = (id: string) => state.jobs.get(id)?.state === "accepted";
  const acceptedId = ({ entry }: QueuedJob) => {
    return entry.kind === "job" && isAccepted(entry.jobId) ? entry.jobId : undefined;
  };
  const waitMs = settingValue(state.settings, "unsatisfiable_wait") * 1_000;
  const unsatisfiable: { jobId: string; message: string }[] = [];
  const never = new Set<string>();
  let recheckAtMs = Number.POSITIVE_INFINITY;
  // A cluster that no node has joined yet says nothing of what will fit.
  for (const job of snapshot.view.roster.size > 0 ? snapshot.queue : []) {
    const jobId = acceptedId(job);
    if (jobId === undefined) continue;
    yield;
    const blockers = yield* cache.satisfiability.neverFits(snapshot, job);
    if (blockers.length === 0) continue;
    never.add(jobId);
    const failsAtMs = job.submittedAtMs + waitMs;
    if (waitMs > 0 && failsAtMs > snapshot.nowMs) {
      recheckAtMs = Math.min(recheckAtMs, failsAtMs);
      continue;
    }
    const message = algorithmFault(state, jobId) ?? neverText(blockers);
    unsatisfiable.push({ jobId, message });
  }
  const queue = snapshot.queue.filter((job) => !never.has(acceptedId(job) ?? ""));
  const admitted = queue.map(acceptedId).filter((id) => id !== undefined);
  return { snapshot: { ...snapshot, queue }, admitted, unsatisfiable, recheckAtMs };
}

function neverText(blockers: readonly Blocker[]): string {
  return `it can never run here: ${blockers.map(blockerText).join("; ")}`;
}

function commandOf(
  { acknowledgeMs }: SchedulingStepOptions,
  { nowMs, settings }: SchedulingSnapshot,
  plan: Plan,
  rest: Pick<CommitPlanCommand, "admitted" | "unsatisfiable">,
): CommitPlanCommand {
  const { overcommitRatio, jobTimeoutMs, maxConcurrentJobs } = settings;
  return {
    type: "plan.commit",
    atMs: nowMs,
    basedOnIndex: plan.basedOnIndex,
    overcommitRatio,
    limits: { jobTimeoutMs, maxConcurrentJobs },
    acknowledgeMs,
    ...rest,
    starts: plan.starts.map(({ entry, placements }) => ({
      entry,
      placements: placements.map(({ nodeId, devices }) => ({ nodeId, devices })),
    })),
    preemptions: plan.preemptions.map(({ victimId, forEntry }) => ({ victimId, forEntry })),
    expired: plan.expired,
    ranked: rankedJobs(plan),
  };
}

/** Only jobs keep their places: a replica's claim is made again in each cycle. */
function rankedJobs({ ranked, reservations }: Plan): RankedJob[] {
  return ranked.flatMap((entry) => {
    if (entry.kind === "replica") return [];
    const startAtMs = reservations.find((each) => isSameEntry(each.entry, entry))?.startAtMs;
    return [{ jobId: entry.jobId, startAtMs: startAtMs && Math.ceil(startAtMs) }];
  });
}

/** The plan as entries of the log: the first has everything but the further starts. */
function entriesOf(command: CommitPlanCommand): CommitPlanCommand[] {
  const [first = [], ...rest] = partsOf(command.starts);
  const more = { ...command, admitted: [], unsatisfiable: [], preemptions: [], expired: [] };
  return [{ ...command, starts: first }, ...rest.map((starts) => ({ ...more, starts }))];
}

function partsOf(starts: CommitPlanCommand["starts"]): CommitPlanCommand["starts"][] {
  const parts: CommitPlanCommand["starts"][number][][] = [];
  let tasks = 0;
  for (const start of starts) {
    const part = parts.at(-1);
    tasks += start.placements.length;
    if (part && part.length < MAX_STARTS && tasks <= MAX_TASKS) part.push(start);
    else {
      parts.push([start]);
      tasks = start.placements.length;
    }
  }
  return parts;
}

function changesSomething({ state, jobs }: ControlPlane, command: CommitPlanCommand): boolean {
  const { admitted, unsatisfiable, starts, preemptions, expired, ranked = [] } = command;
  const lists = [admitted, unsatisfiable, starts, preemptions, expired];
  if (lists.some(({ length }) => length > 0) || ranked.length !== jobs.ranked.size) return true;
  let last = -1;
  return ranked.some(({ jobId, startAtMs }) => {
    const { startMs, rank = -1 } = reservationOf(state.jobs.get(jobId) ?? {});
    const isBehind = rank > last;
    last = rank;
    return !isBehind || isMoved(startMs, startAtMs);
  });
}

function isMoved(held: number | undefined, planned: number | undefined): boolean {
  if (held === undefined || planned === undefined) return held !== planned;
  return Math.abs(planned - held) > RESERVATION_SLACK_MS;
}

/** The next moment at which time alone changes what a plan says: a backoff or a bound has passed. */
function nextPollMs(
  { nowMs, queue, view, settings }: SchedulingSnapshot,
  recheckAtMs: number,
): number | undefined {
  let next = Math.min(recheckAtMs, view.running.nextBoundMs(settings));
  for (const { notBeforeMs } of queue) {
    if (notBeforeMs > nowMs) next = Math.min(next, notBeforeMs);
  }
  return Number.isFinite(next) ? Math.max(next, nowMs) : undefined;
}
