import { Ledger, locate } from "../cluster/ledger.ts";
import { Roster } from "../cluster/roster.ts";
import { ShapeTable } from "../cluster/shape.ts";
import type { NodeSnapshot, RunningJob, WorkloadTarget } from "../model.ts";
import { GangPlacer } from "../placement/gang.ts";
import { Stranding } from "../placement/stranding.ts";
import { targetMix } from "../placement/targets.ts";
import { RunningJobs } from "./running-jobs.ts";

/**
 * An indexed view of a cluster for decisions: capacity, free amounts, holders, and the placement
 * index. It is kept between decisions and follows each change of a job or a node. So a decision
 * costs its changes and not the size of the cluster.
 *
 * - It is a cache of (nodes, running jobs, overcommit ratio). Equal ones with their nodes in the
 *   same order give equal decisions, whatever their history.
 * - A decision releases all that it took.
 */
export class ClusterView {
  readonly roster: Roster;
  readonly overcommitRatio: number;
  /** The cluster without tasks. */
  readonly capacity: Ledger;
  readonly free: Ledger;
  readonly shapes: ShapeTable;
  readonly #running = new RunningJobs();
  /** Keyed by node id, known or not: the jobs with tasks there. */
  readonly #jobsOn = new Map<string, Set<string>>();
  #placer: { readonly targets: readonly WorkloadTarget[]; readonly placer: GangPlacer } | undefined;

  constructor(
    nodes: Iterable<NodeSnapshot>,
    running: Iterable<RunningJob>,
    overcommitRatio: number,
  ) {
    this.roster = new Roster(nodes);
    this.overcommitRatio = overcommitRatio;
    this.capacity = Ledger.ofCapacity(this.roster, overcommitRatio);
    this.free = this.capacity.clone();
    this.shapes = new ShapeTable(this.roster);
    for (const job of running) this.put(job);
  }

  get running(): Omit<RunningJobs, "put" | "remove"> {
    return this.#running;
  }

  /** Adds a running job, or replaces the one with its id. */
  put(job: RunningJob): void {
    const before = this.#running.put(job);
    if (before && holdsTheSame(before, job)) return;
    if (before) this.#move(before, "release");
    this.#move(job, "take");
  }

  remove(id: string): void {
    const job = this.#running.remove(id);
    if (job) this.#move(job, "release");
  }

  /** Adds or changes a node; its jobs keep what they hold of it. */
  putNode(node: NodeSnapshot): void {
    this.#changeNode(() => this.roster.put(node));
    const position = this.roster.position(node.id)!;
    for (const id of this.#jobsOn.get(node.id) ?? []) {
      const { request, placements } = this.#running.get(id)!;
      const shape = this.shapes.of(request);
      for (const { nodeId, devices } of placements) {
        if (nodeId === node.id) this.free.take(position, shape, devices);
      }
    }
  }

  /** Removes a node that has left the cluster. */
  removeNode(id: string): void {
    this.#changeNode(() => this.roster.remove(id));
  }

  /** Resets the node at the position to the roster's capacity, with no tasks on it. */
  #changeNode(change: () => number | undefined): void {
    const { roster } = this;
    const { widestCpuMilli, widestDevices } = roster;
    const position = change();
    if (position === undefined) return;
    this.capacity.reset(position, this.overcommitRatio);
    this.free.reset(position, this.overcommitRatio);
    this.shapes.follow(position);
    // Every score is relative to the largest node.
    const isScaled =
      roster.widestCpuMilli === widestCpuMilli && roster.widestDevices === widestDevices;
    if (!isScaled) this.#placer = undefined;
  }

  /** The same placer, with its caches, for the same targets during the life of the view. */
  placerFor(targets: readonly WorkloadTarget[]): GangPlacer {
    if (this.#placer?.targets !== targets) {
      const stranding = new Stranding(targetMix(targets));
      this.#placer = { targets, placer: new GangPlacer(this.free, stranding) };
    }
    return this.#placer.placer;
  }

  #move(job: RunningJob, move: "take" | "release"): void {
    const { id, request, placements } = job;
    const shape = this.shapes.of(request);
    for (const { nodeId } of placements) {
      const jobs = this.#jobsOn.get(nodeId) ?? new Set();
      if (move === "take") jobs.add(id);
      else jobs.delete(id);
      if (jobs.size > 0) this.#jobsOn.set(nodeId, jobs);
      else this.#jobsOn.delete(nodeId);
    }
    for (const { node, devices } of locate(placements, this.roster)) {
      this.free[move](node, shape, devices);
    }
  }
}

function holdsTheSame(a: RunningJob, b: RunningJob): boolean {
  if (a.request !== b.request || a.placements.length !== b.placements.length) return false;
  return a.placements.every(({ nodeId, devices }, at) => {
    const other = b.placements[at]!;
    return (
      other.nodeId === nodeId && (other.devices === devices || sameList(other.devices, devices))
    );
  });
}

function sameList(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((value, at) => value === b[at]);
}
