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
import { PlacementIndex, pickWithin } from "./placement-index.ts";
import { Scorer } from "./scorer.ts";
import type { Stranding } from "./stranding.ts";

/** What a gang needs beyond one task's shape. */
export interface GangRequest {
  readonly shape: RequestShape;
  readonly tasks: number;
  readonly sameRack: boolean;
  readonly strategy: Strategy;
  /** What the gang takes that belongs to no node. */
  readonly shared?: SharedRequest | undefined;
}

/** One task's place, by the node's position in the roster. */
export interface PlacedTask {
  readonly node: number;
  readonly devices: readonly number[];
}

/** What a gang has taken. */
export interface PlacedGang {
  readonly tasks: readonly PlacedTask[];
  /** What it has that belongs to no node. */
  readonly shared: SharedAmounts | undefined;
}

/** Places whole gangs on one ledger, taking what they use; a gang that does not fit takes nothing. */
export class GangPlacer {
  readonly ledger: Ledger;
  readonly #stranding: Stranding;
  readonly #byStrategy = new Map<Strategy, { scorer: Scorer; index: PlacementIndex }>();

  constructor(ledger: Ledger, stranding: Stranding) {
    this.ledger = ledger;
    this.#stranding = stranding;
  }

  /** A placer with the same mind on another ledger. */
  on(ledger: Ledger): GangPlacer {
    return new GangPlacer(ledger, this.#stranding);
  }

  /** Takes the gang's amounts and says where, or leaves the ledger as it was. */
  place(gang: GangRequest): PlacedGang | undefined {
    if (!sharedFits(this.ledger.shared, gang.shared)) return undefined;
    const tasks = needsDomain(gang) ? this.#placeInDomain(gang) : this.#placeAnywhere(gang);
    return tasks && { tasks, shared: this.ledger.takeShared(gang.shared) };
  }

  #placeAnywhere(gang: GangRequest): PlacedTask[] | undefined {
    if (gang.tasks > 1 && !nodesFit(this.ledger, gang)) return undefined;
    const { scorer, index } = this.#of(gang.strategy);
    return this.#placeTasks(gang, scorer, () => index.best(gang.shape));
  }

  /** The domain that the gang fits in with the least GPU to spare keeps the roomier ones whole. */
  #placeInDomain(gang: GangRequest): PlacedTask[] | undefined {
    const { scorer } = this.#of(gang.strategy);
    const domain = tightestDomain(this.ledger, gang);
    if (!domain) return undefined;
    return this.#placeTasks(gang, scorer, pickWithin(this.ledger, scorer, gang.shape, domain));
  }

  #placeTasks(gang: GangRequest, scorer: Scorer, pick: () => number): PlacedTask[] | undefined {
    const placed: PlacedTask[] = [];
    while (placed.length < gang.tasks) {
      const node = pick();
      if (node === -1) {
        if (placed.length > 0) throw new Error("a gang that fits by count did not place");
        return undefined;
      }
      const devices = scorer.devices(node, gang.shape);
      this.ledger.take(node, gang.shape, devices);
      placed.push({ node, devices });
    }
    return placed;
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

/** Placed tasks under the nodes' names. */
export function namePlacements(
  nodes: readonly NodeSnapshot[],
  placed: readonly PlacedTask[],
): TaskPlacement[] {
  return placed.map(({ node, devices }) => ({ nodeId: nodes[node]!.id, devices }));
}

/** Equal for gangs that ask for the same. */
export function gangKey({ shape, tasks, sameRack, shared }: GangRequest): string {
  return `${shape.id} ${tasks} ${sameRack} ${shared ? JSON.stringify(shared) : ""}`;
}

/** Whether the whole gang fits now, with what it takes that belongs to no node. */
export function gangFits(ledger: Ledger, gang: GangRequest): boolean {
  return sharedFits(ledger.shared, gang.shared) && nodesFit(ledger, gang);
}

/**
 * Whether the nodes have room for the whole gang. Since its tasks are alike, counting copies per node is exact:
 * each task placed on a node lowers that node's count by one and no other's.
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

/** How many of the gang's tasks fit now in the best domain. */
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
  return Math.max(0, ...[...domains(ledger.nodes, gang).values()].map(count));
}

/**
 * The nodes that the gang may use one day: 1 by position for each that it has room on with nothing
 * else there, in a domain that has room for the whole gang then.
 */
export function usableNodes(capacity: Ledger, gang: GangRequest): Uint8Array {
  const { shape, tasks } = gang;
  const usable = new Uint8Array(capacity.nodes.length);
  const all = needsDomain(gang)
    ? domains(capacity.nodes, gang).values()
    : [[...capacity.nodes.keys()]];
  for (const domain of all) {
    const roomy = domain.filter((node) => shape.eligible[node] === 1 && capacity.fits(node, shape));
    const room = roomy.reduce((sum, node) => sum + capacity.copies(node, shape, tasks), 0);
    if (room < tasks) continue;
    for (const node of roomy) usable[node] = 1;
  }
  return usable;
}

function needsDomain({ tasks, sameRack, shape }: GangRequest): boolean {
  return tasks > 1 && (sameRack || shape.request.infiniband);
}

function tightestDomain(ledger: Ledger, gang: GangRequest): readonly number[] | undefined {
  let tightest: readonly number[] | undefined;
  let leastSpareMilli = Number.POSITIVE_INFINITY;
  for (const domain of domains(ledger.nodes, gang).values()) {
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

/** The sets of nodes that the gang may not cross: racks, fabrics, or racks within a fabric. */
function domains(
  nodes: readonly NodeSnapshot[],
  { sameRack, shape }: GangRequest,
): ReadonlyMap<string, readonly number[]> {
  const byKey = new Map<string, number[]>();
  nodes.forEach(({ rack, fabric }, position) => {
    if (sameRack && rack === "") return;
    const key = JSON.stringify([sameRack && rack, shape.request.infiniband && fabric]);
    const domain = byKey.get(key);
    if (domain) domain.push(position);
    else byKey.set(key, [position]);
  });
  return byKey;
}
