import { setImmediate as nextTurn } from "node:timers/promises";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { TreeFrontier } from "../merkle/frontier.ts";
import { TileTree } from "../merkle/proofs.ts";
import { TILE_HEIGHT, TILE_WIDTH } from "../merkle/tile.ts";
import type { HashLevels } from "./hash-levels.ts";

/** What is hashed in one turn of the event loop: up to a tile of entries, in about 0.15 ms. */
const STEP_ENTRIES = TILE_WIDTH;
const STEP_BYTES = 64 * 1024;

/** Adds entries to a tree: their own hashes go into tiles, and each full tile becomes a subtree. */
export class TreeWriter {
  readonly #levels: HashLevels;
  /** The frontier of the full tiles. */
  readonly #frontier: TreeFrontier;
  #size: number;
  /** Entries that come after those of the tree, from the head on. */
  #waiting: Uint8Array[] = [];
  #head = 0;
  #waitingBytes = 0;
  readonly #later = new OncePerTurn(() => this.#work());

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

  /** The number of entries in the tree. */
  get size(): number {
    return this.#size;
  }

  /** Adds the entries at once. None may wait. */
  append(entries: readonly Uint8Array[]): void {
    for (const root of this.#levels.addEntries(entries)) {
      this.#frontier.appendSubtree(TILE_HEIGHT, root, this.#levels.add);
    }
    this.#size += entries.length;
  }

  /** Adds the entries in steps, the first at once and the others in turns of their own. */
  add(entries: readonly Uint8Array[]): void {
    for (const entry of entries) {
      this.#waiting.push(entry);
      this.#waitingBytes += entry.byteLength;
    }
    if (!this.#later.isRequested) this.#work();
  }

  /** Resolves when entries of at most that many bytes wait. */
  async within(bytes: number): Promise<void> {
    while (this.#waitingBytes > bytes) {
      this.#step();
      if (this.#waitingBytes > bytes) await nextTurn();
    }
  }

  /** Resolves when the tree has the first `size` entries, all of which were added. */
  async reach(size: number): Promise<void> {
    while (this.#size < size) {
      this.#step();
      if (this.#size < size) await nextTurn();
    }
  }

  #work(): void {
    this.#step();
    if (this.#waiting.length > 0) this.#later.request();
  }

  #step(): void {
    let bytes = 0;
    let end = this.#head;
    const limit = Math.min(this.#waiting.length, this.#head + STEP_ENTRIES);
    while (end < limit && bytes < STEP_BYTES) {
      bytes += (this.#waiting[end++] as Uint8Array).byteLength;
    }
    this.append(this.#waiting.slice(this.#head, end));
    this.#head = end;
    this.#waitingBytes -= bytes;
    if (this.#head < this.#waiting.length) return;
    this.#waiting = [];
    this.#head = 0;
  }
}
