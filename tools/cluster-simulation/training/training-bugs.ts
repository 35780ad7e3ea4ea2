import { AppError, toAppError } from "@heddle/base/errors";
import { DataConnection } from "@heddle/parameters/data-plane/data-connection";
import { ParameterServerClient } from "@heddle/parameters/parameter-server-client";
import { UpdateClock } from "@heddle/training/consistency/update-clock";
import { Shard } from "../../../apps/parameter-server/dist/shard/shard.js";
import { ShardRegistry } from "../../../apps/parameter-server/dist/shard-registry.js";
import type { ClusterFault } from "../cluster-faults.ts";
import { bug, replaced, type Uproot } from "../planted-bug.ts";

/** An answer to a push is lost, and the push sent again. */
const LOST_ANSWERS: readonly ClusterFault[] = ["resetConnections", "slowNetwork"];

/** Bugs of the parameter servers and their clients. */
export const TRAINING_BUGS = {
  /** Every push counts as the next of its rank. */
  acceptsRepeats: trainingBug(LOST_ANSWERS, () =>
    replaced(
      UpdateClock.prototype,
      "classify",
      (classify) =>
        function (this: UpdateClock, rank, clock) {
          const verdict = classify.call(this, rank, clock);
          return verdict === "repeated" ? "accepted" : verdict;
        },
    ),
  ),
  /** A push whose answer was lost is sent again as a new one. */
  renumbersPushes: trainingBug(LOST_ANSWERS, renumberPushes),
  /** A checkpoint is written of whatever version the shard has. */
  writesAnyVersion: trainingBug(["slowNetwork"], () =>
    replaced(
      Shard.prototype,
      "readAt",
      () =>
        async function (this: Shard, _version, signal) {
          return (await this.read(undefined, 0, signal)).release;
        },
    ),
  ),
  /** Servers accept calls of any attempt as calls of the latest. */
  takesStaleCalls: trainingBug(["programCrash", "slowNetwork", "cutServer"], takeStaleCalls),
};

function trainingBug(faults: readonly ClusterFault[], plant: () => Uproot) {
  return bug(faults, plant, true);
}

function renumberPushes(): Uproot {
  const uproot = replaced(
    DataConnection.prototype,
    "request",
    (ask) =>
      async function (this: DataConnection, request, sink, signal) {
        try {
          return await ask.call(this, request, sink, signal);
        } catch (error) {
          if (!("push" in request) || !toAppError(error).retryable) throw error;
          throw new AppError("conflict", "the answer to a push was lost");
        }
      },
  );
  const push = replaced(
    ParameterServerClient.prototype,
    "push",
    (original) =>
      async function (this: ParameterServerClient, part, terms) {
        try {
          await original.call(this, part, terms);
        } catch (error) {
          if (toAppError(error).code !== "conflict") throw error;
          await this.join();
          await original.call(this, part, terms);
        }
      },
  );
  return () => {
    push();
    uproot();
  };
}

function takeStaleCalls(): Uproot {
  const newest = new WeakMap<ShardRegistry, Map<string, number>>();
  const latest = <Key extends { jobId: string; attempt: number }>(
    registry: ShardRegistry,
    key: Key,
  ): Key => {
    const jobs = newest.get(registry) ?? new Map<string, number>();
    newest.set(registry, jobs);
    const attempt = Math.max(key.attempt, jobs.get(key.jobId) ?? 0);
    jobs.set(key.jobId, attempt);
    return { ...key, attempt };
  };
  const uproot = (["open", "find", "close"] as const).map((name) =>
    replaced(
      ShardRegistry.prototype,
      name,
      (original) =>
        function (this: ShardRegistry, key: never) {
          return (original as (key: never) => unknown).call(this, latest(this, key) as never);
        } as never,
    ),
  );
  return () => {
    for (const each of uproot) each();
  };
}
