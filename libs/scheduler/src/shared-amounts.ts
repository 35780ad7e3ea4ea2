import type { Blocker, SharedAmounts } from "./model.ts";

/** What a job takes that asks for nothing shared. */
export const NOTHING_SHARED: SharedAmounts = { storageMb: 0, shards: 0 };

const MB_PER_GB = 1_000;

/** Whether what is asked for is free; nothing of an amount fits even where that is overdrawn. */
export function sharedFits(free: SharedAmounts, wanted: SharedAmounts | undefined): boolean {
  return !wanted || lacks(free, wanted).length === 0;
}

function lacks(free: SharedAmounts, wanted: SharedAmounts): (keyof SharedAmounts)[] {
  const names = ["storageMb", "shards"] as const;
  return names.filter((name) => wanted[name] > 0 && wanted[name] > free[name]);
}

/** The amounts and so many times the others. */
export function addShared(a: SharedAmounts, b: SharedAmounts | undefined, times: 1 | -1) {
  if (!b) return a;
  return { storageMb: a.storageMb + times * b.storageMb, shards: a.shards + times * b.shards };
}

/** The lesser of each amount. */
export function lesserShared(a: SharedAmounts, b: SharedAmounts): SharedAmounts {
  return {
    storageMb: Math.min(a.storageMb, b.storageMb),
    shards: Math.min(a.shards, b.shards),
  };
}

/** One blocker for each amount of which too little is free, in the units of the API. */
export function sharedBlockers(
  free: SharedAmounts,
  limit: SharedAmounts,
  wanted: SharedAmounts = NOTHING_SHARED,
): Blocker[] {
  return lacks(free, wanted).map((name) => {
    const unit = name === "storageMb" ? MB_PER_GB : 1;
    return {
      reason: name === "storageMb" ? "InsufficientMemory" : "AffinityNoMatch",
      resource: name === "storageMb" ? "shared_storage_gb" : "parameter_server_shards",
      requested: wanted[name] / unit,
      free: Math.max(0, free[name]) / unit,
      limit: limit[name] / unit,
    };
  });
}
