import { commonLength, type KvCache, shareableLength, wholePieces } from "./kv-cache.ts";
import type { Sequence } from "./sequence.ts";

/** What the slots do to the native cache; the cells of slot i are those of sequence id i. */
export interface KvSlots {
  /** Takes the cells at positions from `length` on away. */
  truncate(slot: number, length: number): void;
  /** Replaces what `to` holds by the first `length` of the `held` tokens of `from`. */
  copy(from: number, to: number, length: number, held: number): void;
  /** Exchanges what two slots hold. */
  swap(a: number, b: number): void;
}

interface SlotLimits {
  readonly kvTokens: number;
  readonly maxSequences: number;
}

interface Slot {
  readonly id: number;
  /** Who has it; its cells are then those of the sequence's computed tokens. */
  owner: Sequence | undefined;
  /** While idle: the tokens whose cells it keeps. */
  kept: Int32Array;
  /** How many of these were computed in whole pieces, from the first on. */
  exact: number;
  /** The group of the sequence that computed them. */
  group: string;
  /** When it was last given to a sequence or copied from; the count of those events. */
  lastUsed: number;
}

/** A row of neighbouring slots, and what must change places so that the wanted ones are in it. */
interface Row {
  readonly outside: readonly Slot[];
  readonly within: readonly Slot[];
  readonly movedTokens: number;
}

/** A copy must save at least this many tokens of computing. */
const MIN_COPIED_TOKENS = 16;

/**
 * A copy moves all that the source holds, and computing a token costs as much as moving hundreds.
 * Below this share of the source a copy is not worth it.
 */
const MIN_COPIED_SHARE = 1 / 128;

/** From this share on, a request continues what a slot holds and takes it over. */
const CONTINUED_SHARE = 0.5;

/**
 * Token budget of slot exchanges: each round adds to it, and the unused rest accumulates up to a maximum.
 * Exchanges must cost less than the rounds that they speed up, and delay no request for long.
 */
const MOVED_TOKENS_PER_ROUND = 32;
const MOST_MOVED_TOKENS = 4096;

const NOTHING = new Int32Array(0);

/**
 * A part of the cache for each running sequence; a slot keeps its tokens when its request ends,
 * which is the prefix cache. A new request continues the idle slot whose tokens it begins with.
 * Else it takes an idle slot of least worth, into which the longest prefix of any slot is copied.
 *
 * Invariants:
 * - A slot has at most one owner.
 * - An idle slot's cells are exactly those of `kept`.
 */
export class SlotKvCache implements KvCache {
  readonly capacity: number;
  readonly shares = true;
  readonly #kv: KvSlots;
  readonly #slots: readonly Slot[];
  readonly #running = new Set<Sequence>();
  #clock = 0;
  /** Tokens that exchanges may move now. */
  #movable = MOST_MOVED_TOKENS;

  constructor(kv: KvSlots, { kvTokens, maxSequences }: SlotLimits) {
    this.#kv = kv;
    this.capacity = kvTokens;
    this.#slots = Array.from({ length: maxSequences }, (_, id) => ({
      id,
      owner: undefined,
      kept: NOTHING,
      exact: 0,
      group: "",
      lastUsed: 0,
    }));
  }

  get running(): ReadonlySet<Sequence> {
    return this.#running;
  }

  get hasFreeSlot(): boolean {
    return this.#running.size < this.#slots.length;
  }

  get slots(): number {
    return this.#slots.length;
  }

  get usedTokens(): number {
    return this.#slots.reduce((sum, slot) => sum + heldTokens(slot), 0);
  }

  cachedLength(sequence: Sequence): number {
    return Math.max(...this.#slots.map((slot) => prefixLength(slot, sequence)));
  }

  /** Every slot has room for any sequence, so there is no headroom to check. */
  admit(sequence: Sequence): boolean {
    const best = this.#longestPrefix(sequence);
    const slot = continues(best, sequence) ? best : this.#leastWorth();
    if (slot === undefined) return false;
    let cached = prefixLength(slot, sequence);
    const longest = prefixLength(best, sequence);
    const held = heldTokens(best);
    let source = slot;
    if (longest - cached >= Math.max(MIN_COPIED_TOKENS, held * MIN_COPIED_SHARE)) {
      this.#kv.copy(best.id, slot.id, longest, held);
      best.lastUsed = ++this.#clock;
      cached = longest;
      source = best;
    } else if (cached < slot.kept.length) {
      this.#kv.truncate(slot.id, cached);
    }
    const exact = wholePieces(Math.min(exactTokens(source), cached));
    slot.owner = sequence;
    slot.kept = NOTHING;
    slot.lastUsed = ++this.#clock;
    Object.assign(sequence, { slot: slot.id, computed: cached, exact, admitted: slot.lastUsed });
    this.#running.add(sequence);
    return true;
  }

  /** What a running sequence has computed is found in its slot. */
  share(): void {}

  truncate({ slot, computed }: Sequence): void {
    this.#kv.truncate(slot, computed);
  }

  release(sequence: Sequence): void {
    const slot = this.#slots[sequence.slot] as Slot;
    slot.owner = undefined;
    const isKept = sequence.embedding === undefined;
    slot.kept = isKept ? sequence.tokens.values.subarray(0, sequence.computed) : NOTHING;
    slot.exact = sequence.exact;
    slot.group = sequence.group;
    // The next input to embed takes this slot again: a batch of them evicts one prefix and not all.
    if (!isKept) this.#kv.truncate(slot.id, 0);
    this.#running.delete(sequence);
    Object.assign(sequence, { slot: -1, computed: 0, exact: 0 });
  }

  /**
   * Brings the sequences into neighbouring slots: the library reads the weights once for each row of
   * neighbours. The row is the one that the fewest tokens move for; those outside of it change places
   * with what is in it.
   */
  gather(sequences: readonly Sequence[]): void {
    this.#movable = Math.min(this.#movable + MOVED_TOKENS_PER_ROUND, MOST_MOVED_TOKENS);
    const ids = sequences.map(({ slot }) => slot);
    if (Math.max(...ids) - Math.min(...ids) < ids.length) return;
    const { outside, within } = this.#cheapestRow(new Set(ids));
    for (const [i, slot] of outside.entries()) this.#swap(slot, within[i] as Slot);
  }

  /** The slots outside of a row that are wanted, and as many within that are not; short ones first. */
  #cheapestRow(wanted: ReadonlySet<number>): Row {
    const rows = this.#slots
      .slice(0, this.#slots.length - wanted.size + 1)
      .map(({ id }) => this.#row(id, wanted));
    return rows.reduce((a, b) => (b.movedTokens < a.movedTokens ? b : a));
  }

  #row(begin: number, wanted: ReadonlySet<number>): Row {
    const inRow = ({ id }: Slot) => id >= begin && id < begin + wanted.size;
    const moving = this.#slots
      .filter((slot) => wanted.has(slot.id) !== inRow(slot))
      .sort((a, b) => heldTokens(a) - heldTokens(b));
    return {
      outside: moving.filter(({ id }) => wanted.has(id)),
      within: moving.filter(({ id }) => !wanted.has(id)),
      movedTokens: moving.reduce((sum, slot) => sum + heldTokens(slot), 0),
    };
  }

  #swap(a: Slot, b: Slot): void {
    const tokens = heldTokens(a) + heldTokens(b);
    if (tokens > this.#movable) return;
    this.#movable -= tokens;
    this.#kv.swap(a.id, b.id);
    const { id: _, ...held } = a;
    Object.assign(a, b, { id: a.id });
    Object.assign(b, held);
    for (const slot of [a, b]) if (slot.owner !== undefined) slot.owner.slot = slot.id;
  }

  /** A slot's room is its own: whatever its sequence needs is free. */
  makeRoom(tokens: number): number {
    return tokens;
  }

  evictAll(): number {
    let freed = 0;
    for (const slot of this.#slots) {
      if (slot.owner !== undefined || slot.kept.length === 0) continue;
      freed += slot.kept.length;
      slot.kept = NOTHING;
      this.#kv.truncate(slot.id, 0);
    }
    return freed;
  }

  /** The slot with the longest prefix; idle ones first, then those that hold less. */
  #longestPrefix(sequence: Sequence): Slot {
    const rank = (slot: Slot) => [
      prefixLength(slot, sequence),
      slot.owner === undefined ? 1 : 0,
      -heldTokens(slot),
    ];
    return this.#slots.reduce((a, b) => (compare(rank(b), rank(a)) > 0 ? b : a));
  }

  /** The idle slot to give up: an empty one, else the one unused for longest. */
  #leastWorth(): Slot | undefined {
    const rank = ({ kept, lastUsed }: Slot) => [kept.length === 0 ? 1 : 0, -lastUsed];
    const idle = this.#slots.filter(({ owner }) => owner === undefined);
    if (idle.length === 0) return undefined;
    return idle.reduce((a, b) => (compare(rank(b), rank(a)) > 0 ? b : a));
  }
}

function heldTokens({ owner, kept }: Slot): number {
  return owner?.computed ?? kept.length;
}

function exactTokens({ owner, exact }: Slot): number {
  return owner?.exact ?? exact;
}

/** Leading tokens of the sequence whose cells the slot has, as the sequence may use them. */
function prefixLength(slot: Slot, sequence: Sequence): number {
  const group = slot.owner?.group ?? slot.group;
  if (group !== sequence.group) return 0;
  const held = slot.owner === undefined ? slot.kept : slot.owner.tokens.values;
  const isExact = sequence.isDeterministic;
  const usable = isExact ? exactTokens(slot) : heldTokens(slot);
  const limit = Math.min(usable, shareableLength(sequence));
  const common = commonLength(held, sequence.tokens.values, limit);
  return isExact ? wholePieces(common) : common;
}

function continues(slot: Slot, sequence: Sequence): boolean {
  if (slot.owner !== undefined) return false;
  const length = prefixLength(slot, sequence);
  return length > 0 && length >= slot.kept.length * CONTINUED_SHARE;
}

/** The order of the first numbers that differ. */
function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, i) => value !== b[i]);
  return at < 0 ? 0 : (a[at] as number) - (b[at] as number);
}
