import type { FairQueue } from "./fair-queue.ts";
import { commonLength, type KvCache } from "./kv-cache.ts";
import type { Sequence } from "./sequence.ts";
import type { ThreadSubmit } from "./thread-messages.ts";

/** A prefix that is being computed is waited for when it saves at least this many tokens. */
const MIN_AWAITED_TOKENS = 16;

/** Cells kept free per running sequence at admission, so that it does not preempt at once. */
const HEADROOM_TOKENS = 16;

/**
 * Gives slots to waiting sequences in the queue's order; gives those admitted. The choices of one
 * request take turns with a key's other requests. Where no slot is left, a request that has none
 * gets one of a request that has several. A sequence whose prefix is being computed by another
 * waits for it instead of computing it too.
 */
export function admitWaiting(queue: FairQueue<Sequence>, cache: KvCache): Sequence[] {
  const admitted: Sequence[] = [];
  if (queue.size === 0) return admitted;
  const places = placesByRequest(cache);
  if (!cache.hasFreeSlot) return admitInstead(queue, cache, places);
  for (const sequence of inTurn(queue, places)) {
    if (!cache.hasFreeSlot) break;
    if (isBlocked(sequence, cache)) continue;
    if (!admit(sequence, queue, cache)) break;
    admitted.push(sequence);
  }
  return admitted;
}

function admit(sequence: Sequence, queue: FairQueue<Sequence>, cache: KvCache): boolean {
  if (!cache.admit(sequence, HEADROOM_TOKENS * (cache.running.size + 1))) return false;
  sequence.blocker = undefined;
  sequence.shared = false;
  queue.remove(sequence);
  return true;
}

/** Slots that requests have; those without one are not in it. */
function placesByRequest(cache: KvCache): Map<ThreadSubmit, number> {
  const places = new Map<ThreadSubmit, number>();
  for (const { request } of cache.running) places.set(request, (places.get(request) ?? 0) + 1);
  return places;
}

/** The queue's order where a request's turn is later the more slots it has or is ahead for. */
function inTurn(
  queue: FairQueue<Sequence>,
  places: ReadonlyMap<ThreadSubmit, number>,
): readonly Sequence[] {
  const next = new Map(places);
  const turns = new Map<Sequence, number>();
  for (const sequence of queue.items) {
    const turn = next.get(sequence.request) ?? 0;
    turns.set(sequence, turn);
    next.set(sequence.request, turn + 1);
  }
  return queue.ordered((sequence) => turns.get(sequence) ?? 0);
}

/**
 * Takes a slot from the request that has the most of them and at least two, so that one that waits
 * gets its first; what was taken from goes on later. One a step is soon enough.
 */
function admitInstead(
  queue: FairQueue<Sequence>,
  cache: KvCache,
  places: ReadonlyMap<ThreadSubmit, number>,
): Sequence[] {
  if (Math.max(...places.values()) < 2) return [];
  if (queue.items.every(({ request }) => places.has(request))) return [];
  for (const waiting of inTurn(queue, places)) {
    if (places.has(waiting.request)) continue;
    const victim = youngestOfMost(waiting, queue, cache, places);
    if (victim === undefined || isBlocked(waiting, cache)) continue;
    cache.share(victim, victim.computed);
    cache.release(victim);
    victim.planned = 0;
    queue.pushFront(victim);
    return admit(waiting, queue, cache) ? [waiting] : [];
  }
  return [];
}

/** Whose slot the waiting one may take; a key that was served less than its own keeps its slots. */
function youngestOfMost(
  waiting: Sequence,
  queue: FairQueue<Sequence>,
  cache: KvCache,
  places: ReadonlyMap<ThreadSubmit, number>,
): Sequence | undefined {
  const served = queue.servedOf(waiting.fairKey);
  let victim: Sequence | undefined;
  let most = 2;
  for (const running of cache.running) {
    const count = places.get(running.request) ?? 0;
    if (count < most || running.priority > waiting.priority) continue;
    if (queue.servedOf(running.fairKey) < served) continue;
    // The set runs from old to young: the last one has computed the least.
    victim = running;
    most = count;
  }
  return victim;
}

function isBlocked(sequence: Sequence, cache: KvCache): boolean {
  if (!cache.shares) return false;
  const blocker = sequence.blocker;
  if (blocker !== undefined && blocker.slot >= 0) {
    if (blocker.computed < sequence.blockedLength) return true;
    cache.share(blocker, sequence.blockedLength);
  }
  sequence.blocker = undefined;
  const cached = cache.cachedLength(sequence);
  let longest = cached + MIN_AWAITED_TOKENS - 1;
  for (const running of cache.running) {
    if (running.computed >= running.tokens.length - 1) continue;
    const common = commonPrefix(running, sequence);
    if (common <= longest || common <= running.computed) continue;
    longest = common;
    sequence.blocker = running;
    sequence.blockedLength = common;
  }
  return sequence.blocker !== undefined;
}

/** Tokens that both begin with, less the waiting one's last, which it computes in any case. */
function commonPrefix(running: Sequence, waiting: Sequence): number {
  const most = Math.min(running.tokens.length, waiting.tokens.length - 1);
  return commonLength(running.tokens.values, waiting.tokens.values, most);
}
