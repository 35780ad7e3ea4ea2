import { Worker } from "node:worker_threads";
import type { ShardStart } from "./shard-api.ts";

/** Starts a shard's thread, whose first message is the memory of its slab. */
export function startThread(start: ShardStart): Worker {
  const url = new URL(`./shard-thread${import.meta.url.slice(-3)}`, import.meta.url);
  return new Worker(url, { workerData: start });
}
