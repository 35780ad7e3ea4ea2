import type { SubmitJob } from "@heddle/contracts/jobs";
import type { Change } from "./change.ts";
import type { JobIndex } from "./job-index.ts";
import type { JobRecord, JobsState } from "./records.ts";
import { shardsWanted } from "./task-request.ts";

/** Shards that one parameter server holds at most, as it has it too. */
export const MAX_SHARDS_PER_SERVER = 256;

/** Into how many fragments the model of a job that trains is cut; each has its own shards. */
export function fragmentsWanted({ config }: SubmitJob): number {
  const { fragments } = config;
  return typeof fragments === "number" && fragments >= 1 ? Math.floor(fragments) : 1;
}

/**
 * Parameter servers for the shards of a job that starts, by shard: each goes where the fewest are,
 * to the lowest id of several. Undefined for a job without shards; `none` where there is no room.
 */
export function placeShards(
  { state, index }: Pick<Change, "state" | "index">,
  job: JobRecord,
): readonly string[] | undefined | "none" {
  const wanted = shardsWanted(state.specs.get(job.id)!);
  if (wanted === 0) return undefined;
  const counts = readyServers(state, index);
  const shards: string[] = [];
  while (shards.length < wanted) {
    let best: { id: string; count: number } | undefined;
    for (const [id, count] of counts) if (!best || count < best.count) best = { id, count };
    if (!best || best.count >= MAX_SHARDS_PER_SERVER) return "none";
    counts.set(best.id, best.count + 1);
    shards.push(best.id);
  }
  return shards;
}

/** The servers that take shards, by id, and how many each holds. */
function readyServers({ servers }: JobsState, index: JobIndex): Map<string, number> {
  const ready = [...servers.values()].filter(({ state }) => state === "ready");
  const ids = ready.map(({ id }) => id).sort();
  return new Map(ids.map((id) => [id, shardsOn(index, id)]));
}

/** Shards that jobs hold on the server. */
export function shardsOn(index: JobIndex, serverId: string): number {
  let count = 0;
  for (const shards of index.shardsByServer.get(serverId)?.values() ?? []) count += shards;
  return count;
}

/** Places for shards on the servers that take some: how many there are, and how many are free. */
export function shardSupply(
  state: JobsState,
  index: JobIndex,
): { readonly limit: number; readonly free: number } {
  const counts = [...readyServers(state, index).values()];
  const limit = counts.length * MAX_SHARDS_PER_SERVER;
  return { limit, free: counts.reduce((free, count) => free - count, limit) };
}
