import { type KvSequences, PrefixTree } from "./prefix-tree.ts";
import { privateTokens, type Sequence } from "./sequence.ts";

/** The most KV sequences that llama.cpp can tell apart (LLAMA_MAX_SEQ). */
const MAX_KV_SEQUENCES = 256;

/** The most sequences that may run at once: the prefix tree needs the other ids. */
export const MAX_RUNNING_SEQUENCES = MAX_KV_SEQUENCES / 4;

/** In tokens: what the cache holds at all, and what of it idle prefixes may keep between requests. */
export interface KvLimits {
  readonly capacity: number;
  readonly retained: number;
}

/**
 * Who holds which cells of the unified KV cache: the slots of the running sequences and the prefix
 * tree. Invariant: cells in use = the tree's tokens + every running sequence's private tokens.
 */
export class KvCache {
  readonly capacity: number;
  readonly #kv: KvSequences;
  readonly #tree: PrefixTree;
  readonly #freeSlots: number[];
  /** False for models whose state cannot be cut at a position: they share nothing. */
  readonly #shares: boolean;
  readonly #running = new Set<Sequence>();
  readonly #retained: number;
  #admissions = 0;

  constructor(kv: KvSequences, limits: KvLimits, slots: number, shares: boolean) {
    this.capacity = limits.capacity;
    this.#retained = limits.retained;
    this.#kv = kv;
    this.#shares = shares;
    this.#freeSlots = Array.from({ length: slots }, (_, slot) => slots - 1 - slot);
    const treeIds = Array.from({ length: MAX_KV_SEQUENCES - slots }, (_, i) => slots + i);
    this.#tree = new PrefixTree(kv, treeIds);
  }

  /** The sequences that have a slot, oldest first. */
  get running(): ReadonlySet<Sequence> {
    return this.#running;
  }

  get hasFreeSlot(): boolean {
    return this.#freeSlots.length > 0;
  }

  get shares(): boolean {
    return this.#shares;
  }

  get usedTokens(): number {
    let used = this.#tree.tokenCount;
    for (const sequence of this.#running) used += privateTokens(sequence);
    return used;
  }

  /** How much of the sequence's tokens the tree has; the last token is always computed anew. */
  cachedLength(sequence: Sequence): number {
    return this.#tree.matchLength(sequence.tokens.values, this.#shareLimit(sequence));
  }

  /** Gives the sequence a slot and its cached prefix if all of it and `headroom` fit; else false. */
  admit(sequence: Sequence, headroom: number): boolean {
    const slot = this.#freeSlots.pop();
    if (slot === undefined) return false;
    const lease = this.#tree.attach(sequence.tokens.values, this.#shareLimit(sequence), slot);
    const needed = sequence.tokens.length - lease.length + headroom;
    const missing = needed - (this.capacity - this.usedTokens);
    if (missing > 0 && this.#running.size > 0 && this.#tree.evictableTokens() < missing) {
      this.#tree.release(lease);
      this.#kv.remove(slot, 0, -1);
      this.#freeSlots.push(slot);
      return false;
    }
    if (missing > 0) this.#tree.evict(missing);
    Object.assign(sequence, { slot, lease, computed: lease.length, shared: false });
    sequence.admitted = ++this.#admissions;
    sequence.blocker = undefined;
    this.#running.add(sequence);
    return true;
  }

  /** Puts the first `length` computed tokens into the tree, for others to share. */
  share(sequence: Sequence, length: number): void {
    if (!this.#shares || sequence.lease === undefined || length <= sequence.lease.length) return;
    const tokens = sequence.tokens.values.subarray(0, length);
    sequence.lease = this.#tree.insert(tokens, length, sequence.slot, sequence.lease);
  }

  /** Takes the slot away; the cells that the tree does not hold become free. */
  release(sequence: Sequence): void {
    const kept = sequence.lease?.length ?? 0;
    if (sequence.lease !== undefined) this.#tree.release(sequence.lease);
    this.#kv.remove(sequence.slot, 0, -1);
    this.#freeSlots.push(sequence.slot);
    this.#running.delete(sequence);
    Object.assign(sequence, { slot: -1, lease: undefined, computed: 0, shared: false });
    this.#trim(kept);
  }

  /** Evicts until `tokens` cells are free or nothing is left to evict; gives the free cells. */
  makeRoom(tokens: number): number {
    const free = this.capacity - this.usedTokens;
    return free >= tokens ? free : free + this.#tree.evict(tokens - free);
  }

  /** Drops every cached prefix that no running sequence claims; gives the tokens freed. */
  evictAll(): number {
    return this.#tree.evict(Number.POSITIVE_INFINITY);
  }

  youngest(): Sequence | undefined {
    let youngest: Sequence | undefined;
    for (const sequence of this.#running) {
      if (youngest === undefined || sequence.admitted > youngest.admitted) youngest = sequence;
    }
    return youngest;
  }

  /**
   * Cuts the cached prefixes down to what is kept, the latest one (of `latest` tokens) whole: a
   * kernel that looks at every cell up to the highest one in use pays for each of them, step by
   * step, whoever's they are.
   */
  #trim(latest: number): void {
    const excess = this.#tree.tokenCount - Math.max(this.#retained, latest);
    if (excess > 0) this.#tree.evict(excess);
  }

  #shareLimit(sequence: Sequence): number {
    return this.#shares ? sequence.tokens.length - 1 : 0;
  }
}
