import type { TextSequence } from "../kv-cache/sequence.ts";
import type { LoadedModel } from "./model.ts";

/**
 * Leaves out of a full context the older half of what follows the prompt; of a long prompt the first
 * half of the context stays. The rest is computed again, as a prompt: the cells of later tokens depend on
 * what was left out. False where the cache has no room now, so that the sequence must wait.
 */
export function shiftContext(sequence: TextSequence, { cache, limits }: LoadedModel): boolean {
  const { tokens, request } = sequence;
  const kept = Math.min(request.prompt.length, Math.floor(limits.contextTokens / 2));
  cache.release(sequence);
  tokens.remove(kept, Math.ceil((tokens.length - kept) / 2));
  sequence.promptLength = tokens.length;
  sequence.scored = tokens.length;
  sequence.drafter?.forgetPlaces();
  return cache.admit(sequence, 0);
}
