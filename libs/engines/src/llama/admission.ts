import type { FairQueue } from "./fair-queue.ts";
import { commonLength, type KvCache } from "./kv-cache.ts";
import type { Sequence } from "./sequence.ts";

/** A prefix that is being computed is waited for when it saves at least this many tokens. */
const MIN_AWAITED_TOKENS = 16;

/** Cells kept free per running sequence at admission, so that it does not preempt at once. */
const HEADROOM_TOKENS = 16;

/**
 * Gives slots to waiting sequences in the queue's order; gives those admitted. A sequence whose
 * prefix is being computed by another waits for it instead of computing it too.
 */
export function admitWaiting(queue: FairQueue<Sequence>, cache: KvCache): Sequence[] {
  const admitted: Sequence[] = [];
  if (queue.size === 0 || !cache.hasFreeSlot) return admitted;
  for (const sequence of queue.ordered()) {
    if (!cache.hasFreeSlot) break;
    if (isBlocked(sequence, cache)) continue;
    if (!cache.admit(sequence, HEADROOM_TOKENS * (cache.running.size + 1))) break;
    sequence.blocker = undefined;
    sequence.shared = false;
    queue.remove(sequence);
    admitted.push(sequence);
  }
  return admitted;
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
