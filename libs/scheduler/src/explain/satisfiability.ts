import type { Roster } from "../cluster/roster.ts";
import { Admission, blocker } from "../cycle/admission.ts";
import { capacityBlockers } from "../cycle/capacity-blockers.ts";
import { ClusterView } from "../cycle/cluster-view.ts";
import { gangOf, type SchedulingSnapshot } from "../cycle/scheduling-cycle.ts";
import type { Blocker, NodeSnapshot, QueuedJob, SchedulerSettings, TaskRequest } from "../model.ts";

/** Verdicts kept of one request; beyond that they are found anew. */
const MAX_VERDICTS = 64;

/** Keeps the emptied cluster from one question to the next, and the verdicts on jobs alike. */
export class Satisfiability {
  /** By request, which jobs alike share, then by what else a verdict hangs on. */
  #verdicts = new WeakMap<TaskRequest, Map<string, readonly Blocker[]>>();
  #settings = "";
  #emptied: { readonly layout: ClusterView; readonly of: Roster; version: number } | undefined;

  /**
   * Why a job can never run here: blockers on the cluster with nothing on it and every drained node
   * back, and quotas smaller than the job. Empty where it could run one day; a job that is accepted
   * with blockers here fails as Unsatisfiable.
   */
  neverFits(standing: SchedulingSnapshot, job: QueuedJob): readonly Blocker[] {
    const empty = this.#upToDate(standing);
    const key = keyOf(standing, job);
    const ofRequest = this.#verdicts.get(job.request) ?? new Map<string, readonly Blocker[]>();
    const known = ofRequest.get(key);
    if (known) return known;
    if (ofRequest.size >= MAX_VERDICTS) ofRequest.clear();
    const verdict = judge(standing, empty, job);
    this.#verdicts.set(job.request, ofRequest.set(key, verdict));
    return verdict;
  }

  /** The emptied cluster; where a node or setting has changed, the verdicts count no more. */
  #upToDate({ layout: { roster, running }, queue, settings }: SchedulingSnapshot): ClusterView {
    const { overcommitRatio, jobTimeoutMs, maxConcurrentJobs } = settings;
    const relevant = `${overcommitRatio} ${jobTimeoutMs} ${maxConcurrentJobs}`;
    const known = this.#emptied;
    const isWorn = known?.layout.shapes.isWorn(queue.length + running.jobs) === true;
    const isKept = known?.of === roster && this.#settings === relevant && !isWorn;
    if (isKept && known.version === roster.version) return known.layout;
    this.#settings = relevant;
    this.#verdicts = new WeakMap();
    const changed = isKept ? roster.changedSince(known.version) : undefined;
    if (isKept && changed) {
      for (const id of changed) follow(known.layout, id, roster.get(id));
      known.version = roster.version;
      return known.layout;
    }
    const layout = new ClusterView(roster.present().map(ready), [], overcommitRatio);
    this.#emptied = { layout, of: roster, version: roster.version };
    return layout;
  }
}

/** Jobs with the same request and key have the same verdict. */
function keyOf({ projectOf, shared }: SchedulingSnapshot, job: QueuedJob): string {
  const { tasks, sameRack, kind, maxRuntimeMs } = job;
  const quota = projectOf(job.project)?.quota ?? {};
  const { gpuMilli, gpuHours } = quota;
  const bound = gpuHours === undefined ? "" : `${gpuHours} ${kind} ${maxRuntimeMs}`;
  const storage = `${job.shared?.storageMb} ${shared.limit.storageMb}`;
  return `${tasks} ${sameRack} ${gpuMilli} ${bound} ${storage}`;
}

/**
 * Why a job that can never run does not start: first what holds on the emptied cluster too, then what
 * is in its way now and not told by that.
 */
export function withDecisive(never: readonly Blocker[], now: readonly Blocker[]): Blocker[] {
  const isTold = ({ reason, resource, limit }: Blocker): boolean =>
    never.some(
      (each) => each.reason === reason && each.resource === resource && each.limit === limit,
    );
  return [...never, ...now.filter((each) => !isTold(each))];
}

function follow(empty: ClusterView, id: string, node: NodeSnapshot | undefined): void {
  if (node) empty.putNode(ready(node));
  else empty.removeNode(id);
}

function ready(node: NodeSnapshot): NodeSnapshot {
  return { ...node, state: "ready" };
}

function judge(
  standing: SchedulingSnapshot,
  empty: ClusterView,
  job: QueuedJob,
): readonly Blocker[] {
  const { settings, nowMs } = standing;
  const projectOf = (name: string) => {
    const project = standing.projectOf(name);
    return project && { ...project, usedGpuHours: 0 };
  };
  // Parameter servers may come yet; the storage is what its setting says.
  const shared = job.shared && { ...job.shared, shards: 0 };
  const gang = { ...gangOf({ settings, layout: empty }, job), shared };
  empty.capacity.shared = standing.shared.limit;
  const capacity = capacityBlockers(empty.capacity, empty.capacity, gang);
  const unlimited: SchedulerSettings = { ...settings, maxConcurrentJobs: Number.POSITIVE_INFINITY };
  const quota = new Admission(empty.running, projectOf, nowMs, unlimited).quota(job);
  const none =
    settings.maxConcurrentJobs === 0 ? [blocker("QuotaExceeded", "concurrent_jobs", 1, 0, 0)] : [];
  return [...none, ...quota, ...capacity];
}
