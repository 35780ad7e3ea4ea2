import { runToEnd, type Steps } from "@heddle/base/async/steps";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import type { Ledger } from "../cluster/ledger.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { compareAlike } from "./node-preference.ts";
import type { Scorer } from "./scorer.ts";

/** Tournaments kept at once, about 16 bytes a node each; the least recently used is evicted. */
const MAX_TOURNAMENTS = 512;
/** Target groups that one step evaluates, 2 to 5 ms. */
export const MAX_STEP_COST = 500_000;
/** The cost of a node besides its score, in evaluated target groups. */
const NODE_COST = 50;

/** The tournaments of one ledger by shape, which find the best node without a full scan. */
export class PlacementIndex {
  readonly #ledger: Ledger;
  readonly #scorer: Scorer;
  readonly #tournaments = new BoundedMap<number, Tournament>(MAX_TOURNAMENTS);

  constructor(ledger: Ledger, scorer: Scorer) {
    this.#ledger = ledger;
    this.#scorer = scorer;
  }

  of(shape: RequestShape): Tournament {
    const tournament =
      this.#tournaments.get(shape.id) ?? new Tournament(this.#ledger, this.#scorer, shape);
    this.#tournaments.set(shape.id, tournament);
    return tournament;
  }
}

const NO_NODE = -1;
/** Before the first change of a ledger. */
const NEVER = -1;

/**
 * A winner tree of the nodes for one shape: position 1 is the final, the leaf of node n is at
 * `#leaves + n`. It follows the ledger's change log and replays O(log nodes) matches a change.
 */
export class Tournament {
  readonly #ledger: Ledger;
  readonly #scorer: Scorer;
  readonly #shape: RequestShape;
  #leaves = 0;
  #scores = new Float64Array(0);
  #winners = new Int32Array(0);
  /** The position in the change log up to which the tree is current. */
  #seen = NEVER;

  constructor(ledger: Ledger, scorer: Scorer, shape: RequestShape) {
    this.#ledger = ledger;
    this.#scorer = scorer;
    this.#shape = shape;
  }

  get isFresh(): boolean {
    return this.#seen === this.#ledger.changes.position;
  }

  /** The best node for one task, or -1 if none fits; equal to `bestByScan` over all nodes. */
  best(): number {
    if (!this.isFresh) runToEnd(this.refresh());
    return this.#winners[1] ?? NO_NODE;
  }

  /** Updates the tree. The ledger must not change between the steps. */
  *refresh(): Steps<void> {
    const { changes, nodes } = this.#ledger;
    const { position } = changes;
    const isKnown = this.#seen !== NEVER && nodes.length <= this.#leaves;
    const changed = isKnown ? changes.since(this.#seen) : undefined;
    if (changed) yield* this.#replay(changed);
    else yield* this.#playAll();
    this.#seen = position;
  }

  *#playAll(): Steps<void> {
    // Aborted steps leave an incomplete tree.
    this.#seen = NEVER;
    this.#makeRoom();
    let cost = 0;
    for (let node = 0; node < this.#ledger.nodes.length; node++) {
      cost += this.#enter(node);
      if (cost < MAX_STEP_COST) continue;
      cost = 0;
      yield;
    }
    for (let position = this.#leaves - 1; position >= 1; position--) this.#play(position);
  }

  /** As many leaves as nodes, or up to twice as many. */
  #makeRoom(): void {
    const { length } = this.#ledger.nodes;
    if (length <= this.#leaves) return;
    this.#leaves = 2 ** Math.ceil(Math.log2(length));
    this.#scores = new Float64Array(this.#leaves);
    this.#winners = new Int32Array(2 * this.#leaves).fill(NO_NODE);
  }

  *#replay(changed: readonly number[]): Steps<void> {
    let cost = 0;
    for (const node of changed) {
      cost += this.#enter(node);
      let position = (this.#leaves + node) >> 1;
      for (; position >= 1; position >>= 1) this.#play(position);
      if (cost < MAX_STEP_COST) continue;
      cost = 0;
      yield;
    }
  }

  /** Scores the node; returns the number of evaluated target groups. */
  #enter(node: number): number {
    const enters = this.#shape.eligible[node] === 1 && this.#ledger.fits(node, this.#shape);
    this.#winners[this.#leaves + node] = enters ? node : NO_NODE;
    if (!enters) return NODE_COST;
    this.#scores[node] = this.#scorer.choose(node, this.#shape).score;
    return NODE_COST + this.#scorer.costOf(node, this.#shape);
  }

  #play(position: number): void {
    const a = this.#winners[2 * position]!;
    const b = this.#winners[2 * position + 1]!;
    this.#winners[position] = this.#better(a, b);
  }

  #better(a: number, b: number): number {
    if (a === NO_NODE) return b;
    if (b === NO_NODE) return a;
    const difference = this.#scores[a]! - this.#scores[b]!;
    if (difference !== 0) return difference > 0 ? a : b;
    return compareAlike(this.#ledger, a, b) <= 0 ? a : b;
  }
}
