import { once } from "node:events";
import { rm } from "node:fs/promises";
import { ThreadCalls } from "@heddle/base/async/thread-calls";
import { AppError } from "@heddle/base/errors";
import { ownSocketPath } from "@heddle/base/temporary-socket";
import type { KernelMemory } from "@heddle/kernels/kernels";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { type NodeCredentials, toPlainCredentials } from "@heddle/rpc/credentials";
import type { RefusalCounts } from "../refusal-counts.ts";
import { ShardSlab, slabPlan } from "../slab/shard-slab.ts";
import { FreedSlabs } from "./freed-slabs.ts";
import type { ShardApi } from "./shard-api.ts";
import { startThread } from "./start-thread.ts";

/** A shard for the process that owns its thread. */
export interface ShardHandle {
  readonly spec: ShardSpec;
  /** Over the same memory as the thread's own. */
  readonly slab: ShardSlab;
  readonly calls: ThreadCalls<ShardApi>;
  close(): Promise<void>;
}

/** The part of its server that a shard uses. */
export interface ShardThreadContext {
  readonly credentials: NodeCredentials;
  readonly host: string;
  readonly refusals: RefusalCounts;
}

const START_MS = 20_000;
const freedSlabs = new FreedSlabs();

/** Starts a shard's thread. Rejects with the AppError of a failed start. */
export async function startShard(
  spec: ShardSpec,
  { credentials, host, refusals }: ShardThreadContext,
): Promise<ShardHandle> {
  // Checked here, so that a shard that is too large is an error and does not end its thread.
  const plan = slabPlan(spec);
  ShardSlab.check(plan);
  const socketPath = ownSocketPath("ps");
  const worker = startThread({
    spec,
    credentials: toPlainCredentials(credentials),
    host,
    socketPath,
    refusals: refusals.memory,
  });
  const [{ result }] = (await once(worker, "message", {
    signal: AbortSignal.timeout(START_MS),
  }).catch((cause: unknown) => {
    void worker.terminate();
    throw new AppError("unavailable", "a shard's thread did not start", { cause });
  })) as [{ result: KernelMemory }];
  const slab = new ShardSlab(plan, result);
  const calls = new ThreadCalls<ShardApi>(worker, "the shard");
  // The thread fetches parts and exchanges norms over connections of its own.
  const stopRenewal = credentials.tls?.onUpdate(() => {
    // It fails where the thread has ended, which the thread's callers learn by themselves.
    if (credentials.tls) calls.call("renew", credentials.tls.material).catch(() => undefined);
  });
  const close = async () => {
    stopRenewal?.();
    await worker.terminate();
    await rm(socketPath, { force: true });
    freedSlabs.add(ShardSlab.check(plan));
  };
  return { spec, slab, calls, close };
}
