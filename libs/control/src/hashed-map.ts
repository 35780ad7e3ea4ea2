import { MapSnapshot } from "./map-snapshot.ts";

/**
 * A map that knows a hash of its content at all times: the sum, modulo 2^32 in two lanes, of the
 * hashes of its entries. Values are immutable JSON. Two maps with the same entries have the same
 * hash, in whatever order they came. It finds faults, not forgers.
 */
export class HashedMap<V> extends Map<string, V> {
  #high = 0;
  #low = 0;
  /** Undefined after a change, until somebody asks for it. */
  #hash: string | undefined;

  /** Those that are being read; undefined nearly always. */
  #snapshots: Set<MapSnapshot<V>> | undefined;

  override set(key: string, value: V): this {
    if (this.#snapshots) for (const each of this.#snapshots) each.beforeSet(key);
    this.#count(key, -1);
    super.set(key, value);
    this.#count(key, 1);
    return this;
  }

  override delete(key: string): boolean {
    if (this.#snapshots) for (const each of this.#snapshots) each.beforeDelete(key);
    this.#count(key, -1);
    return super.delete(key);
  }

  override clear(): void {
    if (this.#snapshots) for (const each of this.#snapshots) each.beforeClear();
    super.clear();
    this.#high = 0;
    this.#low = 0;
    this.#hash = undefined;
  }

  /** Takes on the entries and the hash of another map at once. */
  become(other: HashedMap<V>): void {
    if (this.#snapshots) for (const each of this.#snapshots) each.beforeClear();
    super.clear();
    for (const [key, value] of other) super.set(key, value);
    this.#high = other.#high;
    this.#low = other.#low;
    this.#hash = undefined;
  }

  /** The entries of this moment, to be read piece by piece, and given back by `end` at last. */
  freeze(): MapSnapshot<V> {
    const snapshot = new MapSnapshot(this);
    this.#snapshots ??= new Set();
    this.#snapshots.add(snapshot);
    return snapshot;
  }

  /** Stops keeping what the snapshot needs; it must not be read any more. */
  end(snapshot: MapSnapshot<V>): void {
    this.#snapshots?.delete(snapshot);
    if (this.#snapshots?.size === 0) this.#snapshots = undefined;
  }

  /** How many snapshots are kept up. */
  get frozen(): number {
    return this.#snapshots?.size ?? 0;
  }

  /** Sixteen hexadecimal digits. */
  get hash(): string {
    this.#hash ??= hex(this.#high) + hex(this.#low);
    return this.#hash;
  }

  #count(key: string, sign: 1 | -1): void {
    if (!this.has(key)) return;
    const text = `${key}\n${JSON.stringify(this.get(key))}`;
    this.#high = (this.#high + sign * hashText(text, 0x9e3779b9)) >>> 0;
    this.#low = (this.#low + sign * hashText(text, 0x85ebca6b)) >>> 0;
    this.#hash = undefined;
  }
}

/** A hash of a text, 0..2^32-1: FNV-1a over UTF-16 units with MurmurHash3's finalizer. */
export function hashText(text: string, seed: number): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
