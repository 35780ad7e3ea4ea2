import type { ShareVector } from "./fair-share.ts";
import { GangPlacer } from "./gang.ts";
import { Ledger, locate, nodePositions } from "./ledger.ts";
import type { NodeSnapshot, RunningJob, WorkloadTarget } from "./model.ts";
import { RunningJobs } from "./running-jobs.ts";
import { ShapeTable } from "./shape.ts";
import { Stranding } from "./stranding.ts";
import { targetMix } from "./targets.ts";

/**
 * A cluster laid out for decisions: what each node has and has free, who holds what, and the index
 * by which places are found. It can be kept from one decision to the next and brought up to date job
 * by job; then a decision costs what has changed and what is asked, not what the cluster has.
 *
 * It is a cache of (nodes, running jobs, overcommit ratio): however it came about, equal ones give
 * equal decisions. A decision gives back all that it took.
 */
export class Layout {
  readonly nodes: readonly NodeSnapshot[];
  readonly positions: ReadonlyMap<string, number>;
  readonly overcommitRatio: number;
  /** The cluster with nothing on it. */
  readonly capacity: Ledger;
  readonly free: Ledger;
  readonly shapes: ShapeTable;
  /** What all nodes have, lost nodes and sick devices left out. */
  readonly totals: ShareVector;
  readonly #running = new RunningJobs();
  #placer: { readonly targets: readonly WorkloadTarget[]; readonly placer: GangPlacer } | undefined;

  constructor(
    nodes: readonly NodeSnapshot[],
    running: Iterable<RunningJob>,
    overcommitRatio: number,
  ) {
    this.nodes = nodes;
    this.positions = nodePositions(nodes);
    this.overcommitRatio = overcommitRatio;
    this.capacity = Ledger.ofCapacity(nodes, overcommitRatio);
    this.free = this.capacity.clone();
    this.shapes = new ShapeTable(nodes);
    this.totals = clusterCapacity(nodes);
    for (const job of running) this.put(job);
  }

  get running(): Omit<RunningJobs, "put" | "remove"> {
    return this.#running;
  }

  /** A job that runs, in place of what was known under its id. */
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

  /** The same for the same targets as long as the layout lives, with all that it has learned. */
  placerFor(targets: readonly WorkloadTarget[]): GangPlacer {
    if (this.#placer?.targets !== targets) {
      const gpuTypes = this.nodes.map(({ gpuType }) => gpuType);
      const stranding = new Stranding(targetMix(targets), gpuTypes);
      this.#placer = { targets, placer: new GangPlacer(this.free, stranding) };
    }
    return this.#placer.placer;
  }

  #move({ request, placements }: RunningJob, move: "take" | "release"): void {
    const shape = this.shapes.of(request);
    for (const { node, devices } of locate(placements, this.positions)) {
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

/** What the cluster has of each resource, sick devices and lost nodes left out. */
function clusterCapacity(nodes: readonly NodeSnapshot[]): ShareVector {
  const capacity = { gpuMilli: 0, cpuMilli: 0, memoryMib: 0 };
  for (const node of nodes) {
    if (node.state === "lost") continue;
    capacity.gpuMilli += 1000 * node.devices.filter(({ healthy }) => healthy).length;
    capacity.cpuMilli += node.capacity.cpuMilli;
    capacity.memoryMib += node.capacity.memoryMib;
  }
  return capacity;
}
