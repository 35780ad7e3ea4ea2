import { TreeFrontier } from "@heddle/event-store/merkle/frontier";
import { HASH_BYTES } from "@heddle/event-store/merkle/sibling-sides";
import { levelWidth, type ReadTile, TILE_WIDTH, tileBytes } from "@heddle/event-store/merkle/tile";

/** A tree whose tiles are in memory. */
export interface MemoryTree {
  readonly root: Uint8Array;
  readonly readTile: ReadTile;
  /** The rate of building it from the hashes of its leaves. */
  readonly leavesPerSecond: number;
}

export function buildMemoryTree(size: number, leafAt: (index: number) => Uint8Array): MemoryTree {
  const levels: Buffer[] = [];
  for (let level = 0; levelWidth(size, level) > 0; level++) {
    levels.push(Buffer.alloc(levelWidth(size, level) * HASH_BYTES));
  }
  const filled = levels.map(() => 0);
  const frontier = new TreeFrontier();
  const began = performance.now();
  for (let at = 0; at < size; at++) {
    frontier.append(leafAt(at), (level, hash) => {
      levels[level]?.set(hash, filled[level]);
      filled[level] = (filled[level] ?? 0) + HASH_BYTES;
    });
  }
  const leavesPerSecond = size / ((performance.now() - began) / 1_000);
  const readTile: ReadTile = async (tile) => {
    const from = tile.index * TILE_WIDTH * HASH_BYTES;
    return levels[tile.level]?.subarray(from, from + tileBytes(tile)) ?? Buffer.alloc(0);
  };
  return { root: frontier.root(), readTile, leavesPerSecond };
}
