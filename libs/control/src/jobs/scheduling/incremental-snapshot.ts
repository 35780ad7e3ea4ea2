import { ClusterView } from "@heddle/scheduler/cycle/cluster-view";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import type { QueuedJob, WorkloadTarget } from "@heddle/scheduler/model";
import { steadyTargets } from "@heddle/scheduler/placement/targets";
import type { ControlState } from "../../state.ts";
import type { IndexWatcher, JobIndex } from "../index/job-index.ts";
import { isTerminal } from "../records/lifecycle.ts";
import { replicaClaims, servingEntries } from "./replica-claims.ts";
import {
  projectState,
  queuedEntry,
  runningEntry,
  schedulerSettings,
  schedulingInput,
  sharedSupply,
} from "./scheduling-input.ts";

/** Changed jobs between two snapshots beyond which the view is rebuilt. */
const MAX_CHANGED = 200_000;
/** Vacant positions that removed nodes may leave, beside a quarter of those in use. */
const MAX_VACANT = 64;

/**
 * The scheduler's snapshot, kept from one cycle to the next: only changed jobs and nodes are read again.
 * It equals what `schedulingInput` builds from the whole state. Another overcommit ratio rebuilds it.
 */
export class IncrementalSnapshot implements IndexWatcher {
  readonly index: JobIndex;
  readonly #state: ControlState;
  readonly #changedJobs = new Set<string>();
  readonly #changedNodes = new Set<string>();
  /** Removed since the last snapshot; some may have joined again as new ones. */
  readonly #droppedNodes = new Set<string>();
  /** Keyed by job id. */
  readonly #queue = new Map<string, QueuedJob>();
  /** Keyed by node id: the ids under which its replicas run. */
  readonly #serving = new Map<string, readonly string[]>();
  #view: ClusterView | undefined;
  #targets: readonly WorkloadTarget[] = [];

  constructor(state: ControlState, index: JobIndex) {
    this.#state = state;
    this.index = index;
    index.watch(this);
  }

  jobChanged(id: string): void {
    this.#changedJobs.add(id);
    if (this.#changedJobs.size > MAX_CHANGED) this.#reset();
  }

  nodeChanged(id: string): void {
    this.#changedNodes.add(id);
  }

  nodeDropped(id: string): void {
    this.#changedNodes.delete(id);
    this.#droppedNodes.add(id);
  }

  /** The snapshot at this moment; it is valid until the state changes or the next call. */
  take(at: { readonly index: number; readonly nowMs: number }): SchedulingSnapshot {
    const state = this.#state;
    const settings = schedulerSettings(state);
    const view = this.#upToDate(settings.overcommitRatio);
    const queue = [...this.#queue.values(), ...replicaClaims(state)];
    const present = view.running.targets.with(queue).targets();
    this.#targets = steadyTargets(this.#targets, present);
    const projectOf = (name: string) => {
      const project = state.projects.get(name);
      return project && projectState(project, at.nowMs);
    };
    const asked = { queue, nowMs: at.nowMs, settings: { ...settings, targets: this.#targets } };
    const shared = sharedSupply(state, this.index);
    return { index: at.index, view, projectOf, shared, ...asked };
  }

  #upToDate(overcommitRatio: number): ClusterView {
    const view = this.#view;
    const isKept =
      view?.overcommitRatio === overcommitRatio && !needsRebuild(view, this.index.live.size);
    if (!isKept) return this.#rebuild(overcommitRatio);
    for (const id of this.#droppedNodes) {
      this.#followServing(view, id);
      view.removeNode(id);
    }
    for (const id of this.#changedNodes) {
      const snapshot = this.index.snapshotOf(this.#state.nodes.get(id)!);
      if (view.roster.get(id) !== snapshot) view.putNode(snapshot);
      this.#followServing(view, id);
      // The node decides when the tasks of a lost node are gone.
      for (const key of this.index.tasksByNode.get(id) ?? []) {
        this.#changedJobs.add(this.#state.tasks.get(key)!.jobId);
      }
    }
    for (const id of this.#changedJobs) this.#followJob(view, id);
    this.#droppedNodes.clear();
    this.#changedNodes.clear();
    this.#changedJobs.clear();
    return view;
  }

  #rebuild(overcommitRatio: number): ClusterView {
    this.#reset();
    this.#droppedNodes.clear();
    this.#changedNodes.clear();
    const { snapshot } = schedulingInput(this.#state, this.index, { index: 0, nowMs: 0 });
    const { nodes, running } = snapshot;
    const view = new ClusterView(nodes, running, overcommitRatio);
    for (const node of this.#state.nodes.values()) this.#noteServing(node.offer.id);
    for (const id of this.index.live) this.#followQueue(id);
    this.#view = view;
    return view;
  }

  #reset(): void {
    this.#view = undefined;
    this.#changedJobs.clear();
    this.#queue.clear();
    this.#serving.clear();
  }

  #followJob(view: ClusterView, id: string): void {
    const job = this.#state.jobs.get(id);
    const running = job && runningEntry(this.#state, this.index, job);
    if (running) view.put(running);
    else view.remove(id);
    this.#followQueue(id);
  }

  #followQueue(id: string): void {
    const job = this.#state.jobs.get(id);
    const isLive = job !== undefined && !isTerminal(job.state);
    const queued = isLive ? queuedEntry(this.#state, this.index, job) : undefined;
    if (queued) this.#queue.set(id, queued);
    else this.#queue.delete(id);
  }

  #followServing(view: ClusterView, nodeId: string): void {
    for (const id of this.#serving.get(nodeId) ?? []) view.remove(id);
    const node = this.#state.nodes.get(nodeId);
    for (const replica of node ? servingEntries(this.index, node) : []) view.put(replica);
    this.#noteServing(nodeId);
  }

  #noteServing(nodeId: string): void {
    const node = this.#state.nodes.get(nodeId);
    const ids = node ? servingEntries(this.index, node).map(({ id }) => id) : [];
    if (ids.length > 0) this.#serving.set(nodeId, ids);
    else this.#serving.delete(nodeId);
  }
}

/** Whether so much of the view is unused that rebuilding it is worth the cost. */
function needsRebuild({ shapes, roster }: ClusterView, jobs: number): boolean {
  const vacant = roster.slots.length - roster.size;
  return shapes.needsRebuild(jobs) || vacant > MAX_VACANT + roster.size / 4;
}
