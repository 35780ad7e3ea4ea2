import { runToEnd, type Steps } from "@heddle/base/async/steps";
import type { Ledger } from "../cluster/ledger.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { sharedFits } from "../cluster/shared-amounts.ts";
import type {
  NodeSnapshot,
  SharedAmounts,
  SharedRequest,
  Strategy,
  TaskPlacement,
} from "../model.ts";
import { type Domain, domainsOf, needsDomain } from "./domains.ts";
import { MAX_STEP_COST, PlacementIndex, Tournament } from "./placement-index.ts";
import { Scorer } from "./scorer.ts";
import type { Stranding } from "./stranding.ts";

/** The cost of placing one task besides scoring its node, in evaluated target groups. */
const TASK_COST = 1_000;

/** The requirements of a gang beyond one task's shape. */
export interface GangRequest {
  readonly shape: RequestShape;
  readonly tasks: number;
  readonly sameRack: boolean;
  readonly strategy: Strategy;
  /** The shared storage and parameter-server shards of the whole gang. */
  readonly shared?: SharedRequest | undefined;
}

/** The placement of one task, by the node's position in the roster. */
export interface PlacedTask {
  readonly node: number;
  readonly devices: readonly number[];
}

/** The amounts that a placed gang holds. */
export interface PlacedGang {
  readonly tasks: readonly PlacedTask[];
  /** Its shared storage and places on parameter servers. */
  readonly shared: SharedAmounts | undefined;
}

/** Places whole gangs on one ledger. A gang that does not fit changes nothing. */
export class GangPlacer {
  readonly ledger: Ledger;
  readonly #stranding: Stranding;
  readonly #byStrategy = new Map<Strategy, { scorer: Scorer; index: PlacementIndex }>();

  constructor(ledger: Ledger, stranding: Stranding) {
    this.ledger = ledger;
    this.#stranding = stranding;
  }

  /** A placer with the same scores on another ledger. */
  on(ledger: Ledger): GangPlacer {
    return new GangPlacer(ledger, this.#stranding);
  }

  /** Takes the gang's amounts and returns the places; undefined where it does not fit. */
  place(gang: GangRequest): PlacedGang | undefined {
    return runToEnd(this.placeInSteps(gang));
  }

  /** The ledger must not change between the steps. */
  *placeInSteps(gang: GangRequest): Steps<PlacedGang | undefined> {
    if (!sharedFits(this.ledger.shared, gang.shared)) return undefined;
    const { scorer, index } = this.#of(gang.strategy);
    const shape = this.#shapeOf(gang);
    if (!shape) return undefined;
    const tournament =
      shape === gang.shape ? index.of(shape) : new Tournament(this.ledger, scorer, shape);
    if (!tournament.isFresh) yield* tournament.refresh();
    const tasks = yield* this.#placeTasks({ ...gang, shape }, scorer, tournament);
    return tasks && { tasks, shared: this.ledger.takeShared(gang.shared) };
  }

  /**
   * The gang's shape with the nodes that it may take, a copy where these are fewer or become so;
   * undefined where it does not fit.
   */
  #shapeOf(gang: GangRequest): RequestShape | undefined {
    if (needsDomain(gang)) {
      // The tightest domain keeps the larger ones whole.
      const domain = tightestDomain(this.ledger, gang);
      return domain && within(gang.shape, domain);
    }
    if (gang.tasks > 1 && !nodesFit(this.ledger, gang)) return undefined;
    return isSpread(gang) ? within(gang.shape, this.ledger.nodes.keys()) : gang.shape;
  }

  *#placeTasks(
    gang: GangRequest,
    scorer: Scorer,
    tournament: Tournament,
  ): Steps<PlacedTask[] | undefined> {
    const placed: PlacedTask[] = [];
    let cost = 0;
    try {
      while (placed.length < gang.tasks) {
        const node = tournament.best();
        if (node === -1) {
          if (placed.length > 0) throw new Error("a gang that fits by count did not place");
          return undefined;
        }
        const devices = scorer.devices(node, gang.shape);
        if (isSpread(gang)) gang.shape.eligible[node] = 0;
        this.ledger.take(node, gang.shape, devices);
        placed.push({ node, devices });
        cost += TASK_COST + 2 * scorer.costOf(node, gang.shape);
        if (cost < MAX_STEP_COST) continue;
        cost = 0;
        yield;
      }
      return placed;
    } finally {
      // The steps were aborted, or the error above was thrown.
      if (placed.length < gang.tasks) {
        for (const { node, devices } of placed) this.ledger.release(node, gang.shape, devices);
      }
    }
  }

  #of(strategy: Strategy): { scorer: Scorer; index: PlacementIndex } {
    let pair = this.#byStrategy.get(strategy);
    if (!pair) {
      const scorer = new Scorer(strategy, this.ledger, this.#stranding);
      pair = { scorer, index: new PlacementIndex(this.ledger, scorer) };
      this.#byStrategy.set(strategy, pair);
    }
    return pair;
  }
}

/** Whether each task goes to another node. */
function isSpread({ tasks, shape }: GangRequest): boolean {
  return tasks > 1 && shape.onePerNode;
}

/** A copy of the shape with no eligible node outside the domain. */
function within(shape: RequestShape, domain: Iterable<number>): RequestShape {
  const eligible = new Uint8Array(shape.eligible.length);
  for (const node of domain) eligible[node] = shape.eligible[node]!;
  return { ...shape, eligible };
}

/** The places with the ids of their nodes. */
export function namePlacements(
  nodes: readonly NodeSnapshot[],
  placed: readonly PlacedTask[],
): TaskPlacement[] {
  return placed.map(({ node, devices }) => ({ nodeId: nodes[node]!.id, devices }));
}

/** Equal for gangs with equal requests. */
export function gangKey({ shape, tasks, sameRack, shared }: GangRequest): string {
  return `${shape.id} ${tasks} ${sameRack} ${shared ? JSON.stringify(shared) : ""}`;
}

/** Whether the whole gang fits on the nodes and in the shared amounts now. */
export function gangFits(ledger: Ledger, gang: GangRequest): boolean {
  return sharedFits(ledger.shared, gang.shared) && nodesFit(ledger, gang);
}

/**
 * Whether the nodes have room for the whole gang. Counting copies per node is exact: a placed task
 * lowers the count of its own node by one and no other's.
 */
export function nodesFit(ledger: Ledger, gang: GangRequest): boolean {
  if (needsDomain(gang)) return tightestDomain(ledger, gang) !== undefined;
  let missing = gang.tasks;
  for (let node = 0; node < ledger.nodes.length && missing > 0; node++) {
    if (gang.shape.eligible[node] === 0) continue;
    missing -= ledger.copies(node, gang.shape, missing);
  }
  return missing <= 0;
}

/** The number of the gang's tasks that fit now in the best domain. */
export function tasksThatFit(ledger: Ledger, gang: GangRequest): number {
  const { shape, tasks } = gang;
  const count = (nodes: Iterable<number>): number => {
    let fit = 0;
    for (const node of nodes) {
      if (fit >= tasks) break;
      if (shape.eligible[node] === 1) fit += ledger.copies(node, shape, tasks - fit);
    }
    return fit;
  };
  if (!needsDomain(gang)) return count(ledger.nodes.keys());
  return domainsOf(ledger, gang).reduce((most, domain) => Math.max(most, count(domain)), 0);
}

/**
 * The nodes that the gang could use on the empty cluster, 1 by position. Each has room for a task,
 * in a domain with room for the whole gang.
 */
export function usableNodes(capacity: Ledger, gang: GangRequest): Uint8Array {
  const { shape, tasks } = gang;
  const usable = new Uint8Array(capacity.nodes.length);
  const all = needsDomain(gang) ? domainsOf(capacity, gang) : [[...capacity.nodes.keys()]];
  for (const domain of all) {
    const roomy = domain.filter((node) => shape.eligible[node] === 1 && capacity.fits(node, shape));
    const room = roomy.reduce((sum, node) => sum + capacity.copies(node, shape, tasks), 0);
    if (room < tasks) continue;
    for (const node of roomy) usable[node] = 1;
  }
  return usable;
}

function tightestDomain(ledger: Ledger, gang: GangRequest): Domain | undefined {
  let tightest: Domain | undefined;
  let leastSpareMilli = Number.POSITIVE_INFINITY;
  for (const domain of domainsOf(ledger, gang)) {
    let missing = gang.tasks;
    let spareMilli = 0;
    for (const node of domain) {
      if (gang.shape.eligible[node] === 0) continue;
      missing -= ledger.copies(node, gang.shape, gang.tasks);
      spareMilli += ledger.gpuFreeMilli(node);
    }
    if (missing <= 0 && spareMilli < leastSpareMilli) {
      tightest = domain;
      leastSpareMilli = spareMilli;
    }
  }
  return tightest;
}
