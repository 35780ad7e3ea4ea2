import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { roomForShards, spreadShards } from "@heddle/scheduler/cluster/shared-amounts";
import type { JobsTransaction } from "../commands/jobs-transaction.ts";
import type { JobIndex } from "../index/job-index.ts";
import type { JobRecord, JobsState } from "../records/records.ts";
import type { SpecFault } from "../records/spec-faults.ts";
import { requestedFragments, requestedShards } from "../records/task-request.ts";

/** Shards that one parameter server holds at most, as it has it too. */
export const MAX_SHARDS_PER_SERVER = 256;

/**
 * Parameter servers by shard for a job that starts; undefined without shards, `none` where there is
 * no room. As the scheduler has planned, each shard goes with all its fragments to the server with
 * the fewest, of several to the lowest id.
 */
export function placeShards(
  { state, index }: Pick<JobsTransaction, "state" | "index">,
  job: JobRecord,
): readonly string[] | undefined | "none" {
  const spec = state.specs.get(job.id)!;
  const shards = requestedShards(spec);
  if (shards === 0) return undefined;
  const placesPerShard = requestedFragments(spec);
  const { free } = shardSupply(state, index);
  if (shards > roomForShards(free.values(), placesPerShard)) return "none";
  return spreadShards(free, { shards, placesPerShard });
}

/**
 * Shards that all parameter servers together could not hold, were they empty; lost ones count, which
 * may come back. Nothing where no server has ever attached.
 */
export function shardFaults(spec: SubmitJob, servers: JobsState["servers"]): SpecFault[] {
  const each = requestedFragments(spec);
  const shards = requestedShards(spec);
  const empty = Array.from(servers, () => MAX_SHARDS_PER_SERVER);
  const room = each * roomForShards(empty, each);
  if (servers.size === 0 || shards * each <= room) return [];
  // Where uncut shards would fit it is the fragments that are too many.
  const isCut = shards <= roomForShards(empty, 1) && each > 1;
  const param = isCut ? "config.fragments" : "config.parameter_servers";
  const cut = each > 1 ? ` in ${each} fragments are ${shards * each} shards` : " shards";
  const held = `the cluster's parameter servers (${servers.size}) hold ${room} at most`;
  const detail = `${shards}${cut}, and ${held}: ask for fewer, or add servers`;
  return [{ param, detail, reads: ["algorithm", "command", "container_image", "config"] }];
}

/** Shards that jobs hold on the server, those of each fragment counted. */
export function shardsOn(index: JobIndex, serverId: string): number {
  let count = 0;
  for (const shards of index.shardsByServer.get(serverId)?.values() ?? []) count += shards;
  return count;
}

/** For each server that takes shards, in the order of their ids: its places, and the free ones. */
export function shardSupply(
  { servers }: JobsState,
  index: JobIndex,
): {
  readonly limit: ReadonlyMap<string, number>;
  readonly free: ReadonlyMap<string, number>;
} {
  const ready = [...servers.values()].filter(({ state }) => state === "ready");
  const ids = ready.map(({ id }) => id).sort();
  return {
    limit: new Map(ids.map((id) => [id, MAX_SHARDS_PER_SERVER])),
    free: new Map(ids.map((id) => [id, MAX_SHARDS_PER_SERVER - shardsOn(index, id)])),
  };
}
