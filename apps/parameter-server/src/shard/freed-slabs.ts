import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** So much of closed slabs, or so many of them (8 GiB of addresses each), wait for no chance. */
const MAX_BYTES = 16 * 1024 * 1024;
const MAX_SLABS = 16;
/** Calls that still held a slab have let go of it by then. */
const SETTLE_MS = 500;

/**
 * Gives the memory of closed shards back to the system. WebAssembly memory goes with the last
 * reference to it, and V8, to whom a slab of gigabytes is a few bytes of heap, may look for that only
 * hours later: so it is asked to.
 */
export class FreedSlabs {
  #bytes = 0;
  #slabs = 0;
  #timer: NodeJS.Timeout | undefined;

  /** A slab of so many bytes was closed: its thread has ended. */
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

/** Contexts that are made after the flag have the function. */
function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  const collect: unknown = runInNewContext("gc");
  if (typeof collect === "function") collect();
}
