import { agedPriority, outranks } from "@heddle/contracts/call-priority";
import { commonLength, type KvCache, shareableLength, wholePieces } from "../kv-cache/kv-cache.ts";
import type { Sequence } from "../kv-cache/sequence.ts";
import type { SequenceQueue } from "./sequence-queue.ts";

/** A prefix that is being computed is waited for when it saves at least this many tokens. */
const MIN_AWAITED_TOKENS = 16;

/** Cells kept free per running sequence at admission, so that it does not preempt at once. */
const HEADROOM_TOKENS = 16;

/** Slots that running sequences have; who has none is not in it. */
interface Places {
  readonly ofRequest: ReadonlyMap<Sequence["request"], number>;
  readonly ofKey: ReadonlyMap<string, number>;
}

/**
 * Gives slots to waiting sequences in the queue's order; returns those admitted.
 * - The choices of one request take turns with a key's other requests.
 * - Without a free slot or free cells, a request that has no slot preempts one that has several.
 * - Likewise a key preempts a key that has at least two slots more, so long requests block no others.
 * - A higher priority preempts a lower one. A waiting sequence ages, and keeps the rank that it was admitted with.
 * - A sequence whose prefix another one is computing waits for it instead of computing it too.
 */
export function admitWaiting(
  queue: SequenceQueue<Sequence>,
  cache: KvCache,
  nowMs: number,
): Sequence[] {
  const admitted: Sequence[] = [];
  if (queue.size === 0) return admitted;
  for (const each of queue.items) {
    if (each.waitingSinceMs < 0) each.waitingSinceMs = nowMs;
    each.rank = agedPriority(each.priority, nowMs - each.waitingSinceMs);
  }
  const places = placesOf(cache);
  if (!cache.hasFreeSlot) return admitByPreemption(queue, cache, places);
  for (const sequence of inTurn(queue, places)) {
    if (!cache.hasFreeSlot) break;
    if (sequence.embedding !== undefined && !hasRoomForEmbedding(cache)) continue;
    if (isBlocked(sequence, cache)) continue;
    if (!admit(sequence, queue, cache) && !admitForCells(sequence, queue, cache)) break;
    admitted.push(sequence);
  }
  return admitted;
}

/** Inputs to embed leave half of the slots to text, so that it is admitted at once. */
function hasRoomForEmbedding({ running, slots }: KvCache): boolean {
  let embedded = 0;
  for (const { embedding } of running) if (embedding !== undefined) embedded++;
  return embedded < Math.max(1, Math.floor(slots / 2));
}

function admit(sequence: Sequence, queue: SequenceQueue<Sequence>, cache: KvCache): boolean {
  if (!cache.admit(sequence, HEADROOM_TOKENS * (cache.running.size + 1))) return false;
  sequence.blocker = undefined;
  sequence.shared = false;
  queue.remove(sequence);
  return true;
}

/** Preempts one sequence of a key that has more slots; the next step preempts another if needed. */
function admitForCells(waiting: Sequence, queue: SequenceQueue<Sequence>, cache: KvCache): boolean {
  const victim =
    youngestOutranked(waiting, cache) ??
    youngestOfLargestKey(waiting, queue, cache, placesOf(cache));
  if (victim === undefined) return false;
  preempt(victim, queue, cache);
  return admit(waiting, queue, cache);
}

function placesOf(cache: KvCache): Places {
  const ofRequest = new Map<Sequence["request"], number>();
  const ofKey = new Map<string, number>();
  for (const { request, fairKey } of cache.running) {
    ofRequest.set(request, (ofRequest.get(request) ?? 0) + 1);
    ofKey.set(fairKey, (ofKey.get(fairKey) ?? 0) + 1);
  }
  return { ofRequest, ofKey };
}

/** The queue's order where a request's turn is later the more slots it has or is ahead for. */
function inTurn(queue: SequenceQueue<Sequence>, { ofRequest }: Places): readonly Sequence[] {
  const next = new Map(ofRequest);
  const turns = new Map<Sequence, number>();
  for (const sequence of queue.items) {
    const turn = next.get(sequence.request) ?? 0;
    turns.set(sequence, turn);
    next.set(sequence.request, turn + 1);
  }
  return queue.ordered(
    (sequence) => turns.get(sequence) ?? 0,
    ({ rank }) => rank,
  );
}

/**
 * Preempts a sequence of the request that has the most slots and at least two, or of the largest key.
 * The waiting request gets that slot, and the preempted one continues later. One a step is soon enough.
 */
function admitByPreemption(
  queue: SequenceQueue<Sequence>,
  cache: KvCache,
  places: Places,
): Sequence[] {
  let lowest = Number.POSITIVE_INFINITY;
  for (const { rank } of cache.running) lowest = Math.min(lowest, rank);
  const mayPreempt = (waiting: Sequence) =>
    outranks(waiting.rank, lowest) || mayTake(waiting, places);
  if (!queue.items.some(mayPreempt)) return [];
  for (const waiting of inTurn(queue, places)) {
    if (!mayPreempt(waiting)) continue;
    if (waiting.embedding !== undefined && !hasRoomForEmbedding(cache)) continue;
    const victim =
      youngestOutranked(waiting, cache) ??
      youngestOfMost(waiting, queue, cache, places) ??
      youngestOfLargestKey(waiting, queue, cache, places);
    if (victim === undefined || isBlocked(waiting, cache)) continue;
    preempt(victim, queue, cache);
    return admit(waiting, queue, cache) ? [waiting] : [];
  }
  return [];
}

/** Whether there may be a victim at all; called at every step while all slots are taken. */
function mayTake({ request, fairKey }: Sequence, { ofRequest, ofKey }: Places): boolean {
  if (!ofRequest.has(request) && Math.max(...ofRequest.values()) >= 2) return true;
  return Math.max(...ofKey.values()) >= (ofKey.get(fairKey) ?? 0) + 2;
}

/** Preempts a running sequence, which continues before those of its key that came later. */
function preempt(victim: Sequence, queue: SequenceQueue<Sequence>, cache: KvCache): void {
  cache.share(victim, victim.computed);
  cache.release(victim);
  victim.planned = 0;
  victim.waitingSinceMs = -1;
  queue.pushFront(victim);
}

/** The sequence of the lowest rank that has computed the least, if the waiting one outranks it. */
function youngestOutranked({ rank }: Sequence, { running }: KvCache): Sequence | undefined {
  let victim: Sequence | undefined;
  // The set runs from old to young.
  for (const each of running) {
    if (outranks(rank, each.rank) && each.rank <= (victim?.rank ?? each.rank)) victim = each;
  }
  return victim;
}

/** The sequence that the waiting one may preempt; a key served less than its own keeps its slots. */
function youngestOfMost(
  waiting: Sequence,
  queue: SequenceQueue<Sequence>,
  cache: KvCache,
  { ofRequest }: Places,
): Sequence | undefined {
  if (ofRequest.has(waiting.request)) return undefined;
  const served = queue.servedOf(waiting.fairKey);
  let victim: Sequence | undefined;
  let most = 2;
  for (const running of cache.running) {
    const count = ofRequest.get(running.request) ?? 0;
    if (count < most || running.rank > waiting.rank) continue;
    if (queue.servedOf(running.fairKey) < served) continue;
    // The set runs from old to young: the last one has computed the least.
    victim = running;
    most = count;
  }
  return victim;
}

/**
 * The same among keys. The largest keeps at least as many slots as the waiting one's then has, so
 * that two keys do not preempt each other in turn.
 */
function youngestOfLargestKey(
  waiting: Sequence,
  queue: SequenceQueue<Sequence>,
  cache: KvCache,
  { ofKey }: Places,
): Sequence | undefined {
  const served = queue.servedOf(waiting.fairKey);
  let victim: Sequence | undefined;
  let most = (ofKey.get(waiting.fairKey) ?? 0) + 2;
  for (const running of cache.running) {
    const count = ofKey.get(running.fairKey) ?? 0;
    if (count < most || running.rank > waiting.rank) continue;
    if (queue.servedOf(running.fairKey) < served) continue;
    victim = running;
    most = count;
  }
  return victim;
}

function isBlocked(sequence: Sequence, cache: KvCache): boolean {
  if (!cache.shares || sequence.embedding !== undefined) return false;
  const blocker = sequence.blocker;
  if (blocker !== undefined && blocker.slot >= 0) {
    if (blocker.computed < sequence.blockedLength) return true;
    cache.share(blocker, sequence.blockedLength);
  }
  sequence.blocker = undefined;
  const cached = cache.cachedLength(sequence);
  let longest = cached + MIN_AWAITED_TOKENS - 1;
  for (const running of cache.running) {
    if (running.embedding !== undefined) continue;
    if (running.computed >= running.tokens.length - 1) continue;
    const common = commonPrefix(running, sequence);
    if (common <= longest || common <= running.computed) continue;
    longest = common;
    sequence.blocker = running;
    sequence.blockedLength = common;
  }
  return sequence.blocker !== undefined;
}

/** Tokens that both begin with, less those that the waiting one computes in any case. */
function commonPrefix(running: Sequence, waiting: Sequence): number {
  const isExact = waiting.isDeterministic;
  if (running.group !== waiting.group) return 0;
  if (isExact && !running.isDeterministic) return 0;
  const most = Math.min(running.tokens.length, shareableLength(waiting));
  const common = commonLength(running.tokens.values, waiting.tokens.values, most);
  return isExact ? wholePieces(common) : common;
}

/**
 * The youngest sequence of the lowest rank, of the key that has the most slots: keys with few
 * sequences are not preempted first.
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
