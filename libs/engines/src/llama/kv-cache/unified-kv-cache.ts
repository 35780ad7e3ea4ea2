import { type KvCache, shareableLength } from "./kv-cache.ts";
import { type KvSequences, type PrefixLease, PrefixTree } from "./prefix-tree.ts";
import type { Sequence } from "./sequence.ts";

/** The most KV sequences that llama.cpp distinguishes (LLAMA_MAX_SEQ). */
const MAX_KV_SEQUENCES = 256;

/** What a unified cache may hold, in tokens. */
interface UnifiedLimits {
  readonly kvTokens: number;
  readonly maxSequences: number;
  /** What idle prefixes may keep between requests. */
  readonly retainedTokens: number;
}

/**
 * One pool of cells for all: the running sequences' ids come first, the others are the prefix
 * tree's. Invariant: cells in use = the tree's tokens + every running sequence's private tokens.
 */
export class UnifiedKvCache implements KvCache {
  readonly capacity: number;
  readonly slots: number;
  /** False for models whose state cannot be cut at a position: they share nothing. */
  readonly shares: boolean;
  readonly #kv: KvSequences;
  readonly #tree: PrefixTree;
  readonly #freeSlots: number[];
  /** The claim of each running sequence on its cached prefix. */
  readonly #leases = new Map<Sequence, PrefixLease>();
  readonly #running = new Set<Sequence>();
  readonly #retained: number;
  #admissions = 0;

  constructor(kv: KvSequences, limits: UnifiedLimits, shares: boolean) {
    const slots = limits.maxSequences;
    this.capacity = limits.kvTokens;
    this.slots = slots;
    this.#retained = limits.retainedTokens;
    this.#kv = kv;
    this.shares = shares;
    this.#freeSlots = Array.from({ length: slots }, (_, slot) => slots - 1 - slot);
    const treeIds = Array.from({ length: MAX_KV_SEQUENCES - slots }, (_, i) => slots + i);
    this.#tree = new PrefixTree(kv, treeIds);
  }

  get running(): ReadonlySet<Sequence> {
    return this.#running;
  }

  get hasFreeSlot(): boolean {
    return this.#freeSlots.length > 0;
  }

  get usedTokens(): number {
    let used = this.#tree.tokenCount;
    for (const sequence of this.#running) {
      used += sequence.computed - this.#leasedLength(sequence);
    }
    return used;
  }

  cachedLength(sequence: Sequence): number {
    const { tokens, group } = sequence;
    return this.#tree.matchLength(tokens.values, this.#shareLimit(sequence), group);
  }

  admit(sequence: Sequence, headroom: number): boolean {
    const slot = this.#freeSlots.pop();
    if (slot === undefined) return false;
    const limit = this.#shareLimit(sequence);
    const lease = this.#tree.attach(sequence.tokens.values, limit, slot, sequence.group);
    const needed = sequence.tokens.length - lease.length + headroom;
    const missing = needed - (this.capacity - this.usedTokens);
    if (missing > 0 && this.#running.size > 0 && this.#tree.evictableTokens() < missing) {
      this.#tree.release(lease);
      this.#kv.remove(slot, 0, -1);
      this.#freeSlots.push(slot);
      return false;
    }
    if (missing > 0) this.#tree.evict(missing);
    Object.assign(sequence, { slot, computed: lease.length, admitted: ++this.#admissions });
    this.#leases.set(sequence, lease);
    this.#running.add(sequence);
    return true;
  }

  share(sequence: Sequence, length: number): void {
    const lease = this.#leases.get(sequence);
    if (!this.shares || sequence.embedding !== undefined) return;
    if (lease === undefined || length <= lease.length) return;
    const tokens = sequence.tokens.values.subarray(0, length);
    this.#leases.set(sequence, this.#tree.insert(tokens, length, sequence.slot, lease));
  }

  truncate({ slot, computed }: Sequence): void {
    this.#kv.remove(slot, computed, -1);
  }

  release(sequence: Sequence): void {
    const kept = this.#leasedLength(sequence);
    const lease = this.#leases.get(sequence);
    if (lease !== undefined) this.#tree.release(lease);
    this.#leases.delete(sequence);
    this.#kv.remove(sequence.slot, 0, -1);
    this.#freeSlots.push(sequence.slot);
    this.#running.delete(sequence);
    Object.assign(sequence, { slot: -1, computed: 0 });
    this.#trim(kept);
  }

  /** All cells of the pool are equal, so nothing is moved. */
  gather(): void {}

  makeRoom(tokens: number): number {
    const free = this.capacity - this.usedTokens;
    return free >= tokens ? free : free + this.#tree.evict(tokens - free);
  }

  evictAll(): number {
    return this.#tree.evict(Number.POSITIVE_INFINITY);
  }

  /**
   * Evicts cached prefixes beyond the retained tokens; the latest one (of `latest` tokens) stays whole.
   * At every step the kernel visits each cell up to the highest one in use, so unused ones cost time.
   */
  #trim(latest: number): void {
    const excess = this.#tree.tokenCount - Math.max(this.#retained, latest);
    if (excess > 0) this.#tree.evict(excess);
  }

  #leasedLength(sequence: Sequence): number {
    return this.#leases.get(sequence)?.length ?? 0;
  }

  #shareLimit(sequence: Sequence): number {
    return this.shares ? shareableLength(sequence) : 0;
  }
}
