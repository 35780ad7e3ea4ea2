import { once } from "node:events";
import { rm } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import { ownSocketPath } from "@heddle/base/temporary-socket";
import type { KernelMemory } from "@heddle/kernels/kernels";
import type { ShardSpec } from "@heddle/parameters/shard-spec";
import { ThreadCalls } from "@heddle/parameters/thread-calls";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { FreedSlabs } from "./freed-slabs.ts";
import type { ShardApi, ShardStart } from "./shard-api.ts";
import { ShardSlab, slabPlan } from "./shard-slab.ts";

/** A shard as the process that owns its thread sees it. */
export interface ShardHandle {
  readonly spec: ShardSpec;
  /** Over the same memory as the thread's own. */
  readonly slab: ShardSlab;
  readonly calls: ThreadCalls<ShardApi>;
  /** Tells the thread of a newer certificate, if there is one. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

const START_MS = 20_000;
const freedSlabs = new FreedSlabs();

/** Starts a shard's thread. Rejects with the AppError that kept it from starting. */
export async function startShard(
  spec: ShardSpec,
  { credentials, host }: { readonly credentials: NodeCredentials; readonly host: string },
): Promise<ShardHandle> {
  // Judged here, so that a shard that is too large is an error and not the end of its thread.
  const plan = slabPlan(spec);
  ShardSlab.check(plan);
  const socketPath = ownSocketPath("ps");
  const url = new URL(`./shard-thread${import.meta.url.slice(-3)}`, import.meta.url);
  let shown = credentials.tls?.material;
  const { clusterToken } = credentials;
  const workerData: ShardStart = { spec, clusterToken, tls: shown, host, socketPath };
  const worker = new Worker(url, { workerData });
  const [{ result }] = (await once(worker, "message", {
    signal: AbortSignal.timeout(START_MS),
  }).catch((cause: unknown) => {
    void worker.terminate();
    throw new AppError("unavailable", "a shard's thread did not start", { cause });
  })) as [{ result: KernelMemory }];
  const slab = new ShardSlab(plan, result);
  const calls = new ThreadCalls<ShardApi>(worker, "the shard");
  const renew = async () => {
    const material = credentials.tls?.material;
    if (material === shown || !material) return;
    shown = material;
    await calls.call("renew", material);
  };
  const close = async () => {
    await worker.terminate();
    await rm(socketPath, { force: true });
    freedSlabs.add(ShardSlab.check(plan));
  };
  return { spec, slab, calls, renew, close };
}
