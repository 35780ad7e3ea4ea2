import { MapSnapshot } from "./map-snapshot.ts";

/**
 * A map with an incremental hash of its content: the sum, modulo 2^32 in two lanes, of the hashes
 * of its entries. Values are immutable JSON. Insertion order does not matter. It detects faults,
 * not forgery.
 */
export class HashedMap<V> extends Map<string, V> {
  #high = 0;
  #low = 0;
  #bytes = 0;
  /** Undefined after a change, until the next read. */
  #hash: string | undefined;

  /** Open snapshots; undefined if none. */
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
    this.#bytes = 0;
    this.#hash = undefined;
  }

  /** Takes over the entries and the hash of another map at once. */
  replaceWith(other: HashedMap<V>): void {
    if (this.#snapshots) for (const each of this.#snapshots) each.beforeClear();
    super.clear();
    for (const [key, value] of other) super.set(key, value);
    this.#high = other.#high;
    this.#low = other.#low;
    this.#bytes = other.#bytes;
    this.#hash = undefined;
  }

  /** A snapshot of the present entries, read piece by piece; the reader must call `end`. */
  freeze(): MapSnapshot<V> {
    const snapshot = new MapSnapshot(this);
    this.#snapshots ??= new Set();
    this.#snapshots.add(snapshot);
    return snapshot;
  }

  /** Releases a snapshot, which must not be read afterwards. */
  end(snapshot: MapSnapshot<V>): void {
    this.#snapshots?.delete(snapshot);
    if (this.#snapshots?.size === 0) this.#snapshots = undefined;
  }

  /** Approximate memory of the entries; a function of the entries alone. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of open snapshots. */
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
    // One pass over the text for both lanes and the size: most of the cost of a change.
    let high = FNV_BASIS ^ HIGH_SEED;
    let low = FNV_BASIS ^ LOW_SEED;
    let bytes = text.length;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      high = Math.imul(high ^ unit, FNV_PRIME);
      low = Math.imul(low ^ unit, FNV_PRIME);
      bytes += extraBytes(unit);
    }
    this.#high = (this.#high + sign * finished(high)) >>> 0;
    this.#low = (this.#low + sign * finished(low)) >>> 0;
    this.#bytes += sign * bytes;
    this.#hash = undefined;
  }
}

const HIGH_SEED = 0x9e3779b9;
const LOW_SEED = 0x85ebca6b;
const FNV_BASIS = 0x811c9dc5;
const FNV_PRIME = 0x01000193;
/** Memory of a JSON element or member beyond its text. */
const VALUE_BYTES = 24;

/** Approximate memory of a value with this JSON text. */
export function storedBytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) bytes += extraBytes(text.charCodeAt(i));
  return bytes;
}

/** Per character: `,`, `:`, `[` and `{` precede each value; a wide character takes two bytes. */
const EXTRA_BYTES = Uint8Array.from({ length: 0x100 }, (_, unit) =>
  ",:[{".includes(String.fromCharCode(unit)) ? VALUE_BYTES : 0,
);

function extraBytes(unit: number): number {
  return unit < 0x100 ? EXTRA_BYTES[unit]! : 1;
}

/** A hash of a text, 0..2^32-1: FNV-1a over UTF-16 units with MurmurHash3's finalizer. */
export function hashText(text: string, seed: number): number {
  let hash = FNV_BASIS ^ seed;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), FNV_PRIME);
  return finished(hash);
}

function finished(sum: number): number {
  let hash = Math.imul(sum ^ (sum >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
