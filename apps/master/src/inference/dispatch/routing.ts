/** A replica that could take a request. */
export interface Candidate {
  /** The node and the start of its engine: what the prefix index remembers. */
  readonly holder: string;
  /** Sequences that run or wait there. */
  readonly used: number;
  /** Requests that these belong to, at most; each of them can have a place of its own. */
  readonly calls: number;
  readonly maxSequences: number;
  readonly maxQueued: number;
  /** Sequences among the used ones that belong to calls of a key. */
  usedBy(fairKey: string): number;
}

/** What is to be placed. */
interface Placement {
  readonly sequences: number;
  readonly fairKey: string;
}

/** How much a full batch counts against a wholly cached prompt. */
const loadWeight = 0.5;
/** Batches that may wait in an engine where several keys want it; one key alone may have one. */
const maxBatchesAhead = 4;

/**
 * Chooses the replica for a request of a key, or none where no replica has room for it.
 *
 * Replicas where the request starts at once (used + sequences <= maxSequences) come before those
 * where it waits in the engine, which takes one more batch at most (<= maxSequences +
 * min(maxQueued, maxSequences)), unless few requests of many choices fill it, or one key does: a key
 * that has less than half a batch there goes even so, for the engine lets keys share its slots. That
 * keeps it from ever idling, while what waits longer waits here, where it can still go to whichever
 * replica is free first. Others are out. Within a class
 * the highest `share - 0.5 * load` wins, with
 *   share = leading chunks of the prompt that the replica served before / all its chunks (0 of none),
 *   load  = used / maxSequences.
 * So a cached prefix draws requests until the replica's batch is full; then they spill to the next,
 * which holds the prefix from then on. Equal scores go to the replica chosen longest ago.
 */
export function chooseReplica<C extends Candidate>(
  candidates: readonly C[],
  placement: Placement,
  prompt: { readonly chunks: number; readonly matched: ReadonlyMap<string, number> },
  lastChosen: (candidate: C) => number,
): C | undefined {
  let best: { candidate: C; rank: number; score: number } | undefined;
  for (const candidate of candidates) {
    const rank = roomRank(candidate, placement);
    if (rank === 0) continue;
    const matched = prompt.matched.get(candidate.holder) ?? 0;
    const share = prompt.chunks > 0 ? matched / prompt.chunks : 0;
    const score = share - loadWeight * (candidate.used / Math.max(1, candidate.maxSequences));
    const better =
      !best ||
      rank > best.rank ||
      (rank === best.rank &&
        (score > best.score ||
          (score === best.score && lastChosen(candidate) < lastChosen(best.candidate))));
    if (better) best = { candidate, rank, score };
  }
  return best?.candidate;
}

/**
 * 2 where the request starts at once, 1 where it waits in the engine or others make place for it, 0
 * where it is refused.
 */
function roomRank(candidate: Candidate, { sequences, fairKey }: Placement): 0 | 1 | 2 {
  const { used, calls, maxSequences, maxQueued } = candidate;
  if (used + sequences <= maxSequences) return 2;
  // However many choices a request has, it needs no more room than its share of a busy engine:
  // those beyond it wait there, for one that was to wait here until all fit would hold up others.
  const share = Math.max(1, Math.floor(maxSequences / 2));
  const needed = Math.min(sequences, share);
  const room = maxSequences + Math.min(maxQueued, maxSequences);
  if (used + needed <= room || used === 0) return 1;
  // The engine gives each request a place before any has two of them.
  if (calls < maxSequences && sequences <= share && maxQueued > 0) return 1;
  const isWithinShare = candidate.usedBy(fairKey) + needed <= share;
  return isWithinShare && used + needed <= roomForAll(candidate) ? 1 : 0;
}

/** Sequences that a replica holds at most, so that each of several keys has its share of it. */
function roomForAll({ maxSequences, maxQueued }: Candidate): number {
  return maxSequences + Math.min(maxQueued, maxBatchesAhead * maxSequences);
}

/** Whether no call of any key has room: then the others that wait need not be asked. */
export function allFull(candidates: readonly Candidate[]): boolean {
  return candidates.every((candidate) => candidate.used >= roomForAll(candidate));
}
