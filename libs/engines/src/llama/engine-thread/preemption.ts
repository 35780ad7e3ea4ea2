import { outranks } from "@heddle/contracts/call-priority";
import type { Sequence } from "../kv-cache/sequence.ts";

/**
 * Of the lowest rank, the youngest of the key that has the most slots: one that came for a little is
 * not the first to go.
 */
export function youngestOf(running: ReadonlySet<Sequence>): Sequence | undefined {
  const places = new Map<string, number>();
  let lowest = Number.POSITIVE_INFINITY;
  for (const { fairKey, rank } of running) {
    places.set(fairKey, (places.get(fairKey) ?? 0) + 1);
    lowest = Math.min(lowest, rank);
  }
  let youngest: Sequence | undefined;
  let most = 0;
  for (const sequence of running) {
    if (outranks(sequence.rank, lowest)) continue;
    const count = places.get(sequence.fairKey) ?? 0;
    if (count < most) continue;
    if (count > most || sequence.admitted > (youngest?.admitted ?? 0)) youngest = sequence;
    most = count;
  }
  return youngest;
}
