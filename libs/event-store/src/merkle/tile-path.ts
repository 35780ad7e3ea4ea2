import { levelWidth, TILE_WIDTH, type Tile } from "./tile.ts";

// Paths of C2SP tlog-tiles.

/** All tiles of a tree, the lowest level first. */
export function* tilesOf(size: number): Generator<Tile, void> {
  for (let level = 0, left = size; left > 0; level++) {
    for (let index = 0; index * TILE_WIDTH < left; index++) {
      yield { level, index, width: Math.min(TILE_WIDTH, left - index * TILE_WIDTH) };
    }
    left = levelWidth(size, level + 1);
  }
}

/** For example `tile/0/x001/x234/067.p/5`. */
export function tilePath({ level, index, width }: Tile): string {
  return `tile/${level}/${indexPath(index, width)}`;
}

/** The bundle with the entries of a tile of level 0. */
export function bundlePath({ index, width }: Omit<Tile, "level">): string {
  return `tile/entries/${indexPath(index, width)}`;
}

/** What a path names: `tile/0/067`, or `tile/entries/067` for the entries. Undefined for others. */
export function parseTilePath(
  path: string,
): { readonly tile: Tile; readonly isBundle: boolean } | undefined {
  const found = /^tile\/(entries|\d{1,2})\/((?:x\d{3}\/){0,4}\d{3})(?:\.p\/(\d{1,3}))?$/.exec(path);
  if (!found) return undefined;
  const [, kind = "", digits = "", width = TILE_WIDTH] = found;
  const isBundle = kind === "entries";
  const index = Number(digits.replaceAll(/\D/g, ""));
  const tile = { level: isBundle ? 0 : Number(kind), index, width: Number(width) };
  // Each tile has one path: no zeros before the index, and no width of a full tile.
  const written = isBundle ? bundlePath(tile) : tilePath(tile);
  return written === path && tile.width > 0 ? { tile, isBundle } : undefined;
}

function indexPath(index: number, width: number): string {
  const digits = String(index);
  const groups = digits.padStart(Math.ceil(digits.length / 3) * 3, "0").match(/\d{3}/g) ?? [];
  const last = groups.pop();
  const path = [...groups.map((group) => `x${group}`), last].join("/");
  return width === TILE_WIDTH ? path : `${path}.p/${width}`;
}
