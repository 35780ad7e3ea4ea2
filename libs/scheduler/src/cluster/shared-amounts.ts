import type { Blocker, SharedAmounts, SharedRequest } from "../model.ts";

/** The amounts of a cluster without shared resources. */
export const NOTHING_SHARED: SharedAmounts = { storageMb: 0, places: new Map() };

const MB_PER_GB = 1_000;

/**
 * Whether the requested amounts are free. A request for nothing fits even if an amount is
 * overdrawn. Shards are alike, so counting those for which each server has room is exact.
 */
export function sharedFits(free: SharedAmounts, wanted: SharedRequest | undefined): boolean {
  return !wanted || (storageFits(free, wanted) && shardsFit(free, wanted));
}

function storageFits({ storageMb }: SharedAmounts, wanted: SharedRequest): boolean {
  return wanted.storageMb === 0 || wanted.storageMb <= storageMb;
}

function shardsFit({ places }: SharedAmounts, { shards, placesPerShard }: SharedRequest): boolean {
  return shards === 0 || shards <= roomForShards(places.values(), placesPerShard);
}

/** The number of shards of `placesPerShard` places that fit on servers with these free places. */
export function roomForShards(free: Iterable<number>, placesPerShard: number): number {
  let room = 0;
  for (const places of free) room += Math.max(0, Math.floor(places / placesPerShard));
  return room;
}

/** Whether both request shared storage, or both request shards. */
export function wantsTheSame(a: SharedRequest, b: SharedRequest | undefined): boolean {
  return (
    b !== undefined && ((a.storageMb > 0 && b.storageMb > 0) || (a.shards > 0 && b.shards > 0))
  );
}

/**
 * Whether there is enough for all of them, in any order. If little is left on each server it may
 * return false although some order would work.
 */
export function allFit(free: SharedAmounts, wanted: readonly SharedRequest[]): boolean {
  const storageMb = wanted.reduce((sum, each) => sum + each.storageMb, 0);
  if (storageMb > 0 && storageMb > free.storageMb) return false;
  const trains = wanted.filter(({ shards }) => shards > 0);
  if (trains.length < 2) return trains.every((each) => shardsFit(free, each));
  // A shard finds no server only if each has less left than it takes.
  const largest = Math.max(...trains.map(({ placesPerShard }) => placesPerShard));
  const taken = trains.reduce((sum, each) => sum + each.shards * each.placesPerShard, 0);
  return sumOf(free.places.values()) - taken >= (largest - 1) * (free.places.size - 1);
}

/**
 * The server of each shard: the one with the most free places, the first of several in map order.
 * If there is too little room, servers are overdrawn; if there is no server, none is named.
 *
 * - No shard is without a place if there is room for all.
 * - More room at the start never leaves less of it later. So a planned start is still possible if
 *   other jobs have left meanwhile.
 */
export function spreadShards(
  free: ReadonlyMap<string, number>,
  { shards, placesPerShard }: Pick<SharedRequest, "shards" | "placesPerShard">,
): string[] {
  const left = new Map(free);
  if (left.size === 0) return [];
  return Array.from({ length: shards }, () => {
    let best: { id: string; places: number } | undefined;
    for (const [id, places] of left) if (!best || places > best.places) best = { id, places };
    left.set(best!.id, best!.places - placesPerShard);
    return best!.id;
  });
}

/** The amounts that the request takes of what is free, as apply does. */
export function shareOf(free: SharedAmounts, wanted: SharedRequest): SharedAmounts {
  const places = new Map<string, number>();
  for (const id of spreadShards(free.places, wanted)) {
    places.set(id, (places.get(id) ?? 0) + wanted.placesPerShard);
  }
  return { storageMb: wanted.storageMb, places };
}

/** The amounts plus `times` times the held ones; places on servers that are gone do not count. */
export function addShared(
  amounts: SharedAmounts,
  held: SharedAmounts | undefined,
  times: 1 | -1,
): SharedAmounts {
  if (!held) return amounts;
  const storageMb = amounts.storageMb + times * held.storageMb;
  if (held.places.size === 0) return { ...amounts, storageMb };
  const places = new Map(amounts.places);
  for (const [id, count] of held.places) {
    const free = places.get(id);
    if (free !== undefined) places.set(id, free + times * count);
  }
  return { storageMb, places };
}

/** One blocker for each amount of which too little is free, in the units of the API. */
export function sharedBlockers(
  free: SharedAmounts,
  limit: SharedAmounts,
  wanted: SharedRequest | undefined,
): Blocker[] {
  if (!wanted) return [];
  const blockers: Blocker[] = [];
  if (!storageFits(free, wanted)) {
    blockers.push({
      reason: "InsufficientSharedStorage",
      resource: "shared_storage_gb",
      requested: wanted.storageMb / MB_PER_GB,
      free: Math.max(0, free.storageMb) / MB_PER_GB,
      limit: limit.storageMb / MB_PER_GB,
    });
  }
  if (!shardsFit(free, wanted)) blockers.push(shardBlocker(free, limit, wanted));
  return blockers;
}

/** Too few places in all, or enough, but not as many on one server as a shard needs. */
function shardBlocker(
  { places }: SharedAmounts,
  limit: SharedAmounts,
  { shards, placesPerShard: each }: SharedRequest,
): Blocker {
  const free = sumOf(places.values());
  const requested = shards * each;
  if (requested > free) {
    const resource = "parameter_server_shards";
    const all = sumOf(limit.places.values());
    return { reason: "AffinityNoMatch", resource, requested, free, limit: all };
  }
  return {
    reason: "Fragmented",
    resource: `parameter_server_shards_of_${each}_fragments`,
    requested: shards,
    free: roomForShards(places.values(), each),
    limit: roomForShards(limit.places.values(), each),
  };
}

function sumOf(amounts: Iterable<number>): number {
  let sum = 0;
  for (const amount of amounts) sum += Math.max(0, amount);
  return sum;
}
