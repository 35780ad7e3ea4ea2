import { parentPort, workerData } from "node:worker_threads";
import { serveShard } from "./serve-shard.ts";
import type { ShardStart } from "./shard-api.ts";

// The thread of one shard. The process's main thread calls it by messages and shares the slab's
// memory.

if (!parentPort) throw new Error("a shard's thread is started by the parameter server");
await serveShard(workerData as ShardStart, parentPort);
