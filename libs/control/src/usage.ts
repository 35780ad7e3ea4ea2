import { ACCEPTED, type CatalogCommand, type ControlReply, refuse } from "./command.ts";
import type { ControlState } from "./state.ts";
import type { UsageSum } from "./usage-sum.ts";

/** Sums that one command may have. */
export const MAX_USAGE_SUMS = 200;
/** Sums over all days; beyond it the oldest day goes. */
const MAX_USAGE_RECORDS = 50_000;
/** Days whose sums are kept. */
export const USAGE_DAYS = 400;
const DAY_MS = 86_400_000;

/** Replaces the sums of a master by larger ones, so that a repeated command changes nothing. */
export function putUsage(
  { usage }: Pick<ControlState, "usage">,
  { master, sums, atMs }: Extract<CatalogCommand, { type: "usage.put" }>,
): ControlReply {
  if (sums.length > MAX_USAGE_SUMS) {
    return refuse("invalid_value", `at most ${MAX_USAGE_SUMS} sums of usage come at once`);
  }
  const oldest = Math.floor(atMs / DAY_MS) - USAGE_DAYS;
  for (const sum of sums) {
    const at = usageKey(master, sum);
    const known = usage.get(at);
    if (sum.day <= oldest || (known && known.calls >= sum.calls)) continue;
    if (!known && usage.size >= MAX_USAGE_RECORDS && !dropOldest(usage, sum.day)) continue;
    usage.set(at, { ...sum, master });
  }
  return ACCEPTED;
}

function usageKey(master: number, sum: UsageSum): string {
  const { day, key, project, model, isOwnModel } = sum;
  return `${day} ${master} ${key} ${project} ${model}${isOwnModel ? " own" : ""}`;
}

/** Makes room for a sum of that day; false if there is no earlier one. */
function dropOldest(usage: ControlState["usage"], day: number): boolean {
  let oldest = day;
  for (const sum of usage.values()) oldest = Math.min(oldest, sum.day);
  if (oldest === day) return false;
  for (const [at, sum] of usage) if (sum.day === oldest) usage.delete(at);
  return true;
}
