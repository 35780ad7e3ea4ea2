import type { Ledger } from "../cluster/ledger.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { compareAlike } from "./node-preference.ts";
import type { Scorer } from "./scorer.ts";

/** Tournaments kept at once, each about 16 bytes a node; the one longest unused goes first. */
const MAX_TOURNAMENTS = 512;

/**
 * Answers "which node is best for this shape" without looking at every node.
 *
 * For each shape it keeps a tournament over the nodes: a leaf's score, and in each inner position
 * the better of the two below. The ledger logs the nodes that change; a shape that is asked again
 * scores only those anew and replays their matches, O(log nodes) each. The answer is the same as
 * `bestByScan` over all nodes.
 */
export class PlacementIndex {
  readonly #ledger: Ledger;
  readonly #scorer: Scorer;
  readonly #tournaments = new Map<number, Tournament>();

  constructor(ledger: Ledger, scorer: Scorer) {
    this.#ledger = ledger;
    this.#scorer = scorer;
  }

  /** The best node for one task of the shape, or -1 where none fits. */
  best(shape: RequestShape): number {
    let tournament = this.#tournaments.get(shape.id);
    if (tournament) this.#tournaments.delete(shape.id);
    else tournament = new Tournament(this.#ledger, this.#scorer, shape);
    this.#tournaments.set(shape.id, tournament);
    if (this.#tournaments.size > MAX_TOURNAMENTS) {
      const oldest = this.#tournaments.keys().next();
      if (!oldest.done) this.#tournaments.delete(oldest.value);
    }
    return tournament.best();
  }
}

/** Picks the best node of some for one task after the other; -1 where none fits. */
export function pickWithin(
  ledger: Ledger,
  scorer: Scorer,
  shape: RequestShape,
  nodes: readonly number[],
): () => number {
  const eligible = new Uint8Array(ledger.nodes.length);
  for (const node of nodes) eligible[node] = shape.eligible[node]!;
  const tournament = new Tournament(ledger, scorer, { ...shape, eligible });
  return () => tournament.best();
}

const NOBODY = -1;

/** A winner tree: position 1 is the final, a leaf of node n is at `#leaves + n`. */
class Tournament {
  readonly #ledger: Ledger;
  readonly #scorer: Scorer;
  readonly #shape: RequestShape;
  #leaves = 0;
  #scores = new Float64Array(0);
  #winners = new Int32Array(0);
  /** Up to where the ledger's changes are in the tree. */
  #seen = 0;

  constructor(ledger: Ledger, scorer: Scorer, shape: RequestShape) {
    this.#ledger = ledger;
    this.#scorer = scorer;
    this.#shape = shape;
    this.#playAll();
  }

  best(): number {
    const { changes, nodes } = this.#ledger;
    if (this.#seen === changes.position) return this.#winners[1] ?? NOBODY;
    const changed = nodes.length <= this.#leaves ? changes.since(this.#seen) : undefined;
    if (changed) this.#replay(changed);
    else this.#playAll();
    return this.#winners[1] ?? NOBODY;
  }

  #playAll(): void {
    this.#seen = this.#ledger.changes.position;
    this.#makeRoom();
    for (let node = 0; node < this.#ledger.nodes.length; node++) this.#enter(node);
    for (let position = this.#leaves - 1; position >= 1; position--) this.#play(position);
  }

  /** As many leaves as nodes, or up to twice as many. */
  #makeRoom(): void {
    const { length } = this.#ledger.nodes;
    if (length <= this.#leaves) return;
    this.#leaves = 2 ** Math.ceil(Math.log2(length));
    this.#scores = new Float64Array(this.#leaves);
    this.#winners = new Int32Array(2 * this.#leaves).fill(NOBODY);
  }

  #replay(changed: readonly number[]): void {
    this.#seen = this.#ledger.changes.position;
    for (const node of changed) {
      this.#enter(node);
      let position = (this.#leaves + node) >> 1;
      for (; position >= 1; position >>= 1) this.#play(position);
    }
  }

  #enter(node: number): void {
    const enters = this.#shape.eligible[node] === 1 && this.#ledger.fits(node, this.#shape);
    this.#winners[this.#leaves + node] = enters ? node : NOBODY;
    if (enters) this.#scores[node] = this.#scorer.choose(node, this.#shape).score;
  }

  #play(position: number): void {
    const a = this.#winners[2 * position]!;
    const b = this.#winners[2 * position + 1]!;
    this.#winners[position] = this.#better(a, b);
  }

  #better(a: number, b: number): number {
    if (a === NOBODY) return b;
    if (b === NOBODY) return a;
    const difference = this.#scores[a]! - this.#scores[b]!;
    if (difference !== 0) return difference > 0 ? a : b;
    return compareAlike(this.#ledger, a, b) <= 0 ? a : b;
  }
}
