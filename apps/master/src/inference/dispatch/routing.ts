import { AppError } from "@heddle/base/errors";
import type { EngineRequest } from "@heddle/contracts/engine";
import { featuresOf } from "@heddle/rpc/engine-features";
import type { Candidate, PartPlace, ReadyReplica } from "../../nodes/replicas/ready-replica.ts";

/** What is to be placed. */
interface Placement {
  readonly sequences: number;
  readonly fairKey: string;
  readonly priority: number;
  readonly place?: PartPlace | undefined;
}

/** Workers that a refusal names. */
const MAX_NAMED = 5;
/** The weight of a full batch against a fully cached prompt. */
const LOAD_WEIGHT = 0.5;
/** Batches that may wait in an engine for several keys; a single key may have one. */
const MAX_BATCHES_AHEAD = 4;

/**
 * Chooses the replica for a request of a key; undefined if no replica has room.
 *
 * 1. Replicas where it starts at once (used + sequences <= maxSequences).
 * 2. Replicas where it waits in the engine (<= maxSequences + min(maxQueued, maxSequences)), which
 *    keeps the engine busy. The bound has two exceptions: few requests of many choices fill the
 *    engine, or other keys do and this key has under half a batch. The engine then shares slots.
 *    Calls of lower priorities take no room from a higher one, whose engine preempts them.
 * 3. Others have no room: the call waits here, where it can still go to the first free replica.
 *
 * Within a class, the replica with the fewest other parts of the same call for its size wins. Then
 * the highest `share - 0.5 * load` wins:
 *
 * - share = leading chunks of the prompt that the replica served before / all its chunks,
 * - load = used / maxSequences.
 *
 * So a cached prefix attracts requests until the replica's batch is full. Then they spill to the
 * next, which holds the prefix from then on. Equal scores go to the least recently chosen replica.
 */
export function chooseReplica<C extends Candidate>(
  candidates: readonly C[],
  placement: Placement,
  prompt: { readonly chunks: number; readonly matched: ReadonlyMap<string, number> },
  lastChosen: (candidate: C) => number,
): C | undefined {
  let best: { candidate: C; rank: number; apart: number; score: number } | undefined;
  for (const candidate of candidates) {
    const rank = roomRank(candidate, placement);
    if (rank === 0) continue;
    const matched = prompt.matched.get(candidate.holder) ?? 0;
    const share = prompt.chunks > 0 ? matched / prompt.chunks : 0;
    const score = share - LOAD_WEIGHT * (candidate.used / Math.max(1, candidate.maxSequences));
    const apart = -partsShare(candidate, placement.place);
    const better =
      !best ||
      (rank - best.rank ||
        apart - best.apart ||
        score - best.score ||
        lastChosen(best.candidate) - lastChosen(candidate)) > 0;
    if (better) best = { candidate, rank, apart, score };
  }
  return best?.candidate;
}

/** How much of the replica's batch other parts of the same call fill. */
function partsShare({ holder, maxSequences }: Candidate, place: PartPlace | undefined): number {
  let sequences = 0;
  for (const each of place?.siblings ?? []) {
    if (each !== place && each.holder === holder) sequences += each.sequences;
  }
  return sequences / Math.max(1, maxSequences);
}

/** Whether the replica's worker knows all that the request asks of its engine. */
export function knowsAll({ features }: Pick<ReadyReplica, "features">, request: EngineRequest) {
  return featuresOf(request).every((feature) => features.includes(feature));
}

/**
 * The replicas that may answer the request. Stages refuse what is to be deterministic; where no
 * whole replica is ready they give their reason.
 */
export function suited<R extends Pick<ReadyReplica, "isDivided">>(
  ready: readonly R[],
  request: EngineRequest,
): readonly R[] {
  if (request.kind !== undefined || !request.deterministic) return ready;
  const whole = ready.filter(({ isDivided }) => !isDivided);
  return whole.length > 0 ? whole : ready;
}

/** Why none of the ready replicas can answer the request, which would ignore a part of it. */
export function unknownTo(
  ready: readonly Pick<ReadyReplica, "features" | "nodeName">[],
  request: EngineRequest,
  deployment: string,
): AppError | undefined {
  if (ready.length === 0 || ready.some((replica) => knowsAll(replica, request))) return undefined;
  const names = ready.slice(0, MAX_NAMED).map(({ nodeName }) => nodeName);
  const more = ready.length > MAX_NAMED ? ` and ${ready.length - MAX_NAMED} more` : "";
  const message = `the call needs ${featuresOf(request).join(", ")}, which the workers that run ${deployment} are too old for: upgrade ${names.join(", ")}${more}`;
  return new AppError("unavailable", message, { model: deployment });
}

/** 2: starts at once. 1: waits in the engine, or other calls yield slots. 0: no room. */
function roomRank(candidate: Candidate, { sequences, fairKey, priority }: Placement): 0 | 1 | 2 {
  const { used, calls, maxSequences, maxQueued } = candidate;
  if (used + sequences <= maxSequences) return 2;
  // A request needs no more room than its share of a busy engine, however many choices it has: the
  // other choices wait there. Holding it until all fit would block the queue.
  const share = Math.max(1, Math.floor(maxSequences / 2));
  const needed = Math.min(sequences, share);
  const room = maxSequences + Math.min(maxQueued, maxSequences);
  if (used + needed <= room) return 1;
  const isWithinQueue = used + needed <= maxSequences + maxQueued;
  if (isWithinQueue && used - candidate.yielding(priority) + needed <= room) return 1;
  // The engine gives each request one slot before any gets a second.
  if (calls < maxSequences && sequences <= share && maxQueued > 0) return 1;
  const isWithinShare = candidate.usedBy(fairKey) + needed <= share;
  return isWithinShare && used + needed <= roomForAll(candidate) ? 1 : 0;
}

/** Maximum sequences on a replica, so that each of several keys has its share of it. */
function roomForAll({ maxSequences, maxQueued }: Candidate): number {
  return maxSequences + Math.min(maxQueued, MAX_BATCHES_AHEAD * maxSequences);
}

/** Whether no call of any key has room: then no other queued call needs a try. */
export function allFull(candidates: readonly Candidate[]): boolean {
  return candidates.every((candidate) => candidate.used >= roomForAll(candidate));
}
