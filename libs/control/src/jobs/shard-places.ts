import type { SubmitJob } from "@heddle/contracts/jobs";
import type { Change } from "./change.ts";
import type { JobIndex } from "./job-index.ts";
import type { JobRecord, JobsState } from "./records.ts";
import type { SpecFault } from "./spec-faults.ts";
import { fragmentsWanted, shardsWanted } from "./task-request.ts";

/** Shards that one parameter server holds at most, as it has it too. */
export const MAX_SHARDS_PER_SERVER = 256;

/**
 * Parameter servers for the shards of a job that starts, by shard: each goes where the fewest are,
 * to the lowest id of several. Undefined for a job without shards; `none` where there is no room.
 */
export function placeShards(
  { state, index }: Pick<Change, "state" | "index">,
  job: JobRecord,
): readonly string[] | undefined | "none" {
  const spec = state.specs.get(job.id)!;
  if (shardsWanted(spec) === 0) return undefined;
  return spreadShards(readyServers(state, index), spec) ?? "none";
}

/**
 * Takes places for the job's shards, those of all fragments of a shard on one server: they are what
 * the trainers open there. Undefined, with nothing taken, where there is no room.
 */
function spreadShards(counts: Map<string, number>, spec: SubmitJob): string[] | undefined {
  const wanted = shardsWanted(spec);
  const each = fragmentsWanted(spec);
  if (wanted * each > roomFor(counts.values(), each)) return undefined;
  return Array.from({ length: wanted }, () => {
    let best: { id: string; count: number } | undefined;
    for (const [id, count] of counts) if (!best || count < best.count) best = { id, count };
    const { id, count } = best!;
    counts.set(id, count + each);
    return id;
  });
}

/** Places that servers with so many shards each have for shards of so many fragments. */
function roomFor(counts: Iterable<number>, fragments: number): number {
  let room = 0;
  for (const count of counts) {
    room += Math.max(0, Math.floor((MAX_SHARDS_PER_SERVER - count) / fragments));
  }
  return room * fragments;
}

/**
 * Shards that all parameter servers together could not hold, were they empty; lost ones count, which
 * may come back. Nothing where no server has ever attached.
 */
export function shardFaults(spec: SubmitJob, servers: JobsState["servers"]): SpecFault[] {
  const each = fragmentsWanted(spec);
  const shards = shardsWanted(spec);
  const empty = Array.from(servers, () => 0);
  const room = roomFor(empty, each);
  if (servers.size === 0 || shards * each <= room) return [];
  // Where uncut shards would fit it is the fragments that are too many.
  const isCut = shards <= roomFor(empty, 1) && each > 1;
  const param = isCut ? "config.fragments" : "config.parameter_servers";
  const cut = each > 1 ? ` in ${each} fragments are ${shards * each} shards` : " shards";
  const held = `the cluster's parameter servers (${servers.size}) hold ${room} at most`;
  const detail = `${shards}${cut}, and ${held}: ask for fewer, or add servers`;
  return [{ param, detail, reads: ["algorithm", "command", "container_image", "config"] }];
}

/** The servers that take shards, by id, and how many each holds. */
function readyServers({ servers }: JobsState, index: JobIndex): Map<string, number> {
  const ready = [...servers.values()].filter(({ state }) => state === "ready");
  const ids = ready.map(({ id }) => id).sort();
  return new Map(ids.map((id) => [id, shardsOn(index, id)]));
}

/** Shards that jobs hold on the server, those of each fragment counted. */
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
