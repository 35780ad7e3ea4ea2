import { EMPTY_ROOT, nodeHash } from "./hash.ts";
import { TILE_HEIGHT } from "./tile.ts";
import { subtreesOf } from "./tree-shape.ts";

/** Receives each hash of a tile once it is complete: those of a level in their order. */
export type TileHashSink = (level: number, hash: Uint8Array) => void;

/**
 * A growing tree by the roots of its complete subtrees, at most one of each height. That is all that
 * its root and further leaves need.
 */
export class TreeFrontier {
  /** From the left, of falling heights. */
  readonly #roots: Uint8Array[];
  #size: number;

  /** `roots` are those of `subtreesOf` the range from 0 to `size`. */
  constructor(size = 0, roots: readonly Uint8Array[] = []) {
    const expected = subtreesOf({ begin: 0, end: size }).length;
    if (roots.length !== expected) {
      throw new RangeError(`${size} leaves are ${expected} subtrees, not ${roots.length}`);
    }
    this.#size = size;
    this.#roots = [...roots];
  }

  get size(): number {
    return this.#size;
  }

  /** Appends one leaf. The sink gets its hash, and those of the tiles that it completes. */
  append(leaf: Uint8Array, sink?: TileHashSink): void {
    this.appendSubtree(0, leaf, sink);
  }

  /** Appends a complete subtree of 2^height leaves, at a size that is a multiple of that. */
  appendSubtree(height: number, root: Uint8Array, sink?: TileHashSink): void {
    const leaves = 2 ** height;
    if (this.#size % leaves !== 0) {
      throw new RangeError(`a subtree of ${leaves} leaves cannot begin at ${this.#size}`);
    }
    let hash = root;
    let at = height;
    if (at % TILE_HEIGHT === 0) sink?.(at / TILE_HEIGHT, hash);
    // Each subtree of the same height on the left is one bit of the size.
    for (let count = this.#size / leaves; count % 2 === 1; count = (count - 1) / 2) {
      hash = nodeHash(this.#roots.pop() as Uint8Array, hash);
      at++;
      if (at % TILE_HEIGHT === 0) sink?.(at / TILE_HEIGHT, hash);
    }
    this.#roots.push(hash);
    this.#size += leaves;
  }

  root(): Uint8Array {
    let root = this.#roots.at(-1);
    if (!root) return EMPTY_ROOT;
    for (let at = this.#roots.length - 2; at >= 0; at--) {
      root = nodeHash(this.#roots[at] as Uint8Array, root);
    }
    return root;
  }
}
