import { TreeFrontier } from "../merkle/frontier.ts";
import { TileTree } from "../merkle/proofs.ts";
import { TILE_HEIGHT } from "../merkle/tile.ts";
import type { HashLevels } from "./hash-levels.ts";

/** Adds entries to a tree: their own hashes go into tiles, and each full tile becomes a subtree. */
export class TreeWriter {
  readonly #levels: HashLevels;
  /** The frontier of the full tiles. */
  readonly #frontier: TreeFrontier;
  #size: number;

  private constructor(levels: HashLevels, frontier: TreeFrontier) {
    this.#levels = levels;
    this.#frontier = frontier;
    this.#size = frontier.size;
  }

  /** Continues after full segments whose hashes are in the levels. */
  static async after(size: number, levels: HashLevels): Promise<TreeWriter> {
    const roots = await new TileTree(size, levels.readTile).subtreeRoots({ begin: 0, end: size });
    return new TreeWriter(levels, new TreeFrontier(size, roots));
  }

  /** The number of entries. */
  get size(): number {
    return this.#size;
  }

  append(entries: readonly Uint8Array[]): void {
    for (const root of this.#levels.addEntries(entries)) {
      this.#frontier.appendSubtree(TILE_HEIGHT, root, this.#levels.add);
    }
    this.#size += entries.length;
  }
}
