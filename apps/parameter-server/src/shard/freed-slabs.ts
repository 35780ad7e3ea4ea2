import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** At this total, or this number (8 GiB of addresses each), closed slabs are collected at once. */
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_SLABS = 16;
/** After this time, calls that still used a slab have released it. */
const SETTLE_MS = 500;

/**
 * Returns the memory of closed shards to the system. WebAssembly memory is freed with its last
 * reference, but V8 counts a slab as a few bytes and may collect it hours later. So collection is
 * requested.
 */
export class FreedSlabs {
  #bytes = 0;
  #slabs = 0;
  #timer: NodeJS.Timeout | undefined;

  /** A slab of this size was closed: its thread has ended. */
  add(bytes: number): void {
    this.#bytes += bytes;
    this.#slabs++;
    if (this.#bytes < MAX_BYTES && this.#slabs < MAX_SLABS) return;
    this.#timer ??= setTimeout(() => this.#collect(), SETTLE_MS).unref();
  }

  #collect(): void {
    this.#timer = undefined;
    this.#bytes = 0;
    this.#slabs = 0;
    collectGarbage();
  }
}

/** Contexts that are created after the flag is set have the function. */
function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  if (typeof collect === "function") collect();
}
