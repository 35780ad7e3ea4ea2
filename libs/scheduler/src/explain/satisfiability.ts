import type { Steps } from "@heddle/base/async/steps";
import type { Roster } from "../cluster/roster.ts";
import { Admission, blocker } from "../cycle/admission.ts";
import { capacityBlockers } from "../cycle/capacity-blockers.ts";
import { ClusterView } from "../cycle/cluster-view.ts";
import { gangOf, type SchedulingSnapshot } from "../cycle/scheduling-cycle.ts";
import type { Blocker, NodeSnapshot, QueuedJob, SchedulerSettings, TaskRequest } from "../model.ts";

/** Verdicts kept for one request; all are dropped when there are more. */
const MAX_VERDICTS = 64;

/** Finds jobs that can never run. It caches a view of the empty cluster and the verdicts on it. */
export class Satisfiability {
  /** Keyed by request, which equal jobs share, then by the other inputs of the verdict. */
  #verdicts = new WeakMap<TaskRequest, Map<string, readonly Blocker[]>>();
  #settings = "";
  #empty: { readonly view: ClusterView; readonly of: Roster; version: number } | undefined;

  /**
   * The blockers of the job on the cluster without jobs, with every drained node available, and the
   * quotas smaller than the job. If it can never run, an accepted job fails as Unsatisfiable.
   */
  *neverFits(snapshot: SchedulingSnapshot, job: QueuedJob): Steps<readonly Blocker[]> {
    const empty = this.#upToDate(snapshot);
    const key = verdictKey(snapshot, job);
    const ofRequest = this.#verdicts.get(job.request) ?? new Map<string, readonly Blocker[]>();
    const known = ofRequest.get(key);
    if (known) return known;
    if (ofRequest.size >= MAX_VERDICTS) ofRequest.clear();
    const verdict = yield* permanentBlockers(snapshot, empty, job);
    this.#verdicts.set(job.request, ofRequest.set(key, verdict));
    return verdict;
  }

  /** The view of the empty cluster; a changed node or setting drops all verdicts. */
  #upToDate({ view: { roster, running }, queue, settings }: SchedulingSnapshot): ClusterView {
    const { overcommitRatio, jobTimeoutMs, maxConcurrentJobs } = settings;
    const relevant = `${overcommitRatio} ${jobTimeoutMs} ${maxConcurrentJobs}`;
    const known = this.#empty;
    const needsRebuild = known?.view.shapes.needsRebuild(queue.length + running.jobs) === true;
    const isKept = known?.of === roster && this.#settings === relevant && !needsRebuild;
    if (isKept && known.version === roster.version) return known.view;
    this.#settings = relevant;
    this.#verdicts = new WeakMap();
    const changed = isKept ? roster.changedSince(known.version) : undefined;
    if (isKept && changed) {
      for (const id of changed) follow(known.view, id, roster.get(id));
      known.version = roster.version;
      return known.view;
    }
    const view = new ClusterView(roster.present().map(ready), [], overcommitRatio);
    this.#empty = { view, of: roster, version: roster.version };
    return view;
  }
}

/** Equal for jobs with the same request and the same verdict. */
function verdictKey({ projectOf, shared }: SchedulingSnapshot, job: QueuedJob): string {
  const { tasks, sameRack, kind, maxRuntimeMs } = job;
  const quota = projectOf(job.project)?.quota ?? {};
  const { gpuMilli, gpuHours } = quota;
  const bound = gpuHours === undefined ? "" : `${gpuHours} ${kind} ${maxRuntimeMs}`;
  const storage = `${job.shared?.storageMb} ${shared.limit.storageMb}`;
  return `${tasks} ${sameRack} ${gpuMilli} ${bound} ${storage}`;
}

/** The permanent blockers first, then the current ones that none of them covers. */
export function withDecisive(never: readonly Blocker[], now: readonly Blocker[]): Blocker[] {
  const isCovered = ({ reason, resource, limit }: Blocker): boolean =>
    never.some(
      (each) => each.reason === reason && each.resource === resource && each.limit === limit,
    );
  return [...never, ...now.filter((each) => !isCovered(each))];
}

function follow(empty: ClusterView, id: string, node: NodeSnapshot | undefined): void {
  if (node) empty.putNode(ready(node));
  else empty.removeNode(id);
}

function ready(node: NodeSnapshot): NodeSnapshot {
  return { ...node, state: "ready" };
}

function* permanentBlockers(
  snapshot: SchedulingSnapshot,
  empty: ClusterView,
  job: QueuedJob,
): Steps<readonly Blocker[]> {
  const { settings, nowMs } = snapshot;
  const projectOf = (name: string) => {
    const project = snapshot.projectOf(name);
    return project && { ...project, usedGpuHours: 0 };
  };
  // Parameter servers may still join; the storage is as configured.
  const shared = job.shared && { ...job.shared, shards: 0 };
  const gang = { ...(yield* gangOf({ settings, view: empty }, job)), shared };
  empty.capacity.shared = snapshot.shared.limit;
  const capacity = yield* capacityBlockers(empty.capacity, empty.capacity, gang);
  const unlimited: SchedulerSettings = { ...settings, maxConcurrentJobs: Number.POSITIVE_INFINITY };
  const quota = new Admission(empty.running, projectOf, nowMs, unlimited).quota(job);
  const none =
    settings.maxConcurrentJobs === 0 ? [blocker("QuotaExceeded", "concurrent_jobs", 1, 0, 0)] : [];
  return [...none, ...quota, ...capacity];
}
