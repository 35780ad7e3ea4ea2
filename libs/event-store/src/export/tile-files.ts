import type { EventStore } from "../log/event-store.ts";
import { TILE_WIDTH, type Tile } from "../merkle/tile.ts";
import { bundlePath, tilePath, tilesOf } from "../merkle/tile-path.ts";
import { parseCheckpoint } from "../notes/checkpoint.ts";
import { formatNote, type SignedNote } from "../notes/signed-note.ts";

/** A file of C2SP tlog-tiles, by its path under the log's prefix. */
export interface TileFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

const LENGTH_BYTES = 2;

/**
 * The tree and the entries of a checkpoint as the files of C2SP tlog-tiles, which any static server
 * can serve. The checkpoint is the last one. Bundles that retention removed are left out.
 */
export async function* tileFiles(
  log: EventStore,
  checkpoint: SignedNote,
): AsyncGenerator<TileFile> {
  const { size } = parseCheckpoint(checkpoint.text);
  for (const tile of tilesOf(size)) {
    yield { path: tilePath(tile), bytes: await log.readTile(tile) };
    if (tile.level > 0 || tile.index * TILE_WIDTH < log.first) continue;
    yield { path: bundlePath(tile), bytes: await readBundle(log, tile) };
  }
  yield { path: "checkpoint", bytes: Buffer.from(formatNote(checkpoint)) };
}

/** The entries of a tile of level 0. Throws `gone` where retention removed them. */
export async function readBundle(
  log: EventStore,
  { index, width }: Omit<Tile, "level">,
): Promise<Uint8Array> {
  return bundle(await readEntries(log, index * TILE_WIDTH, width));
}

async function readEntries(log: EventStore, start: number, count: number): Promise<Uint8Array[]> {
  const found: Uint8Array[] = [];
  while (found.length < count) {
    found.push(...(await log.read(start + found.length, count - found.length)).entries);
  }
  return found;
}

/** Entries with their lengths before them. */
function bundle(entries: readonly Uint8Array[]): Uint8Array {
  const size = entries.reduce((sum, entry) => sum + LENGTH_BYTES + entry.byteLength, 0);
  const bytes = Buffer.alloc(size);
  let at = 0;
  for (const entry of entries) {
    at = bytes.writeUInt16BE(entry.byteLength, at);
    bytes.set(entry, at);
    at += entry.byteLength;
  }
  return bytes;
}
