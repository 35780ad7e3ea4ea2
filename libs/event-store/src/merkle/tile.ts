import { HASH_BYTES } from "./sibling-sides.ts";

// Tiles of C2SP tlog-tiles: runs of up to 256 hashes of one level, and bundles of as many entries.

export const TILE_WIDTH = 256;
/** Binary levels between two levels of tiles. */
export const TILE_HEIGHT = 8;

export interface Tile {
  readonly level: number;
  /** Among the tiles of its level. */
  readonly index: number;
  /** 1 to 256 hashes. */
  readonly width: number;
}

/** Gives the hashes of a tile, `width * 32` bytes. */
export type ReadTile = (tile: Tile) => Promise<Uint8Array>;

/** The hashes that a level has in a tree of that size. */
export function levelWidth(size: number, level: number): number {
  return Math.floor(size / TILE_WIDTH ** level);
}

export function tileBytes({ width }: Tile): number {
  return width * HASH_BYTES;
}
