import { AppError } from "@heddle/base/errors";
import { completeRoot } from "@heddle/kernels/tree-hash";
import { EMPTY_ROOT, nodeHash } from "./hash.ts";
import { HASH_BYTES } from "./sibling-sides.ts";
import { levelWidth, type ReadTile, TILE_HEIGHT, TILE_WIDTH, tileBytes } from "./tile.ts";
import {
  consistencyRanges,
  inclusionRanges,
  type LeafRange,
  type Subtree,
  subtreesOf,
} from "./tree-shape.ts";

/** A tree of a fixed size over tiles. Each tile is read at most once. */
export class TileTree {
  readonly size: number;
  readonly #readTile: ReadTile;
  readonly #tiles = new Map<string, Promise<Uint8Array>>();

  constructor(size: number, readTile: ReadTile) {
    if (!Number.isSafeInteger(size) || size < 0) throw new RangeError(`no tree has ${size} leaves`);
    this.size = size;
    this.#readTile = readTile;
  }

  root(): Promise<Uint8Array> {
    return this.rangeRoot({ begin: 0, end: this.size });
  }

  /** Proves that the leaf is in this tree. */
  async inclusionProof(index: number): Promise<Uint8Array[]> {
    if (!(index >= 0 && index < this.size)) {
      throw new RangeError(`a tree of ${this.size} leaves has no leaf ${index}`);
    }
    return this.#roots(inclusionRanges(index, this.size));
  }

  /** Proves that the tree of the first `from` leaves is a prefix of this one. */
  async consistencyProof(from: number): Promise<Uint8Array[]> {
    if (!(from >= 0 && from <= this.size)) {
      throw new RangeError(`a tree of ${this.size} leaves has no prefix of ${from}`);
    }
    return this.#roots(consistencyRanges(from, this.size));
  }

  /** The roots of the fewest subtrees that are the range. */
  subtreeRoots(range: LeafRange): Promise<Uint8Array[]> {
    return Promise.all(subtreesOf(range).map((subtree) => this.#subtreeRoot(subtree)));
  }

  /** The hash of leaves that are a tree of their own, or the right part of one. */
  async rangeRoot(range: LeafRange): Promise<Uint8Array> {
    const roots = await this.subtreeRoots(range);
    let root = roots.pop();
    if (!root) return EMPTY_ROOT;
    for (const left of roots.reverse()) root = nodeHash(left, root);
    return root;
  }

  #roots(ranges: readonly LeafRange[]): Promise<Uint8Array[]> {
    return Promise.all(ranges.map((range) => this.rangeRoot(range)));
  }

  async #subtreeRoot({ height, index }: Subtree): Promise<Uint8Array> {
    const level = Math.floor(height / TILE_HEIGHT);
    const count = 2 ** (height % TILE_HEIGHT);
    const first = index * count;
    const tile = await this.#tile(level, Math.floor(first / TILE_WIDTH));
    const at = first % TILE_WIDTH;
    return completeRoot(tile.subarray(at * HASH_BYTES, (at + count) * HASH_BYTES));
  }

  #tile(level: number, index: number): Promise<Uint8Array> {
    const key = `${level}/${index}`;
    let bytes = this.#tiles.get(key);
    if (!bytes) {
      bytes = this.#read(level, index);
      this.#tiles.set(key, bytes);
    }
    return bytes;
  }

  async #read(level: number, index: number): Promise<Uint8Array> {
    const width = Math.min(TILE_WIDTH, levelWidth(this.size, level) - index * TILE_WIDTH);
    const tile = { level, index, width };
    const bytes = await this.#readTile(tile);
    if (bytes.byteLength === tileBytes(tile)) return bytes;
    const message = `tile ${index} of level ${level} has ${bytes.byteLength} bytes, not ${tileBytes(tile)}`;
    throw new AppError("server_error", `${message}: it is damaged, or the tree is smaller`);
  }
}
