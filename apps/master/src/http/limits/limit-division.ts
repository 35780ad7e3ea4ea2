import { type LimitShare, shareOfLimits } from "@heddle/auth/rate-limiter";
import type { Limits } from "@heddle/contracts/limits";
import type { GroupRoster } from "../../control-plane/control-group.ts";

/** After a change of the masters the smaller share applies for as long as a limit's window. */
const CHANGE_HOLD_MS = 60_000;
/** Changes that are kept. */
const MAX_CHANGES = 16;

/** The masters that divide the limits, as this one sees them. */
interface Division {
  /** In the order of the ids, learners included: a non-voter takes calls too. */
  readonly ids: readonly number[];
  readonly names: readonly string[];
  /** This master's position; a non-member has no share. */
  readonly rank: number;
}

const ALONE: Division = { ids: [0], names: ["this one"], rank: 0 };

export interface LimitDivisionOptions {
  /** The group of masters; absent for a single master. */
  readonly group?: (() => GroupRoster) | undefined;
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
}

/** This master's share of each limit; the shares of all masters sum to the limit. */
export class LimitDivision {
  readonly #options: LimitDivisionOptions;
  #members: GroupRoster["members"] = [];
  #division: Division = ALONE;
  #before: { readonly division: Division; readonly untilMs: number }[] = [];

  constructor(options: LimitDivisionOptions) {
    this.#options = options;
  }

  /** The masters that divide the limits; the first ones have what is left over. */
  get names(): readonly string[] {
    return this.#division.names;
  }

  get ownName(): string {
    return this.#division.names[this.#division.rank] ?? "this one";
  }

  shareOf(limits: Limits): Limits {
    this.#detectChange();
    const nowMs = this.#options.now();
    while (this.#before[0] && this.#before[0].untilMs < nowMs) this.#before.shift();
    if (this.#before.length === 0 && this.#division.names.length === 1) return limits;
    const earlier = this.#before.map(({ division }) => shareOf(limits, division));
    return earlier.reduce(least, shareOf(limits, this.#division));
  }

  /** Detects a change of the masters. */
  #detectChange(): void {
    const roster = this.#options.group?.();
    if (!roster || roster.members === this.#members) return;
    const isFirst = this.#members.length === 0;
    this.#members = roster.members;
    const division = divisionOf(roster);
    const { ids, rank } = this.#division;
    if (rank === division.rank && String(ids) === String(division.ids)) return;
    const untilMs = this.#options.now() + CHANGE_HOLD_MS;
    if (!isFirst) this.#before.push({ division: this.#division, untilMs });
    if (this.#before.length > MAX_CHANGES) this.#before.shift();
    this.#division = division;
  }
}

function divisionOf({ members, id }: GroupRoster): Division {
  const sorted = [...members].sort((a, b) => a.id - b.id);
  const ids = sorted.map((member) => member.id);
  const rank = ids.indexOf(id);
  return {
    ids,
    names: sorted.map(({ name }) => name),
    rank: rank < 0 ? Number.POSITIVE_INFINITY : rank,
  };
}

function shareOf(limits: Limits, { ids, rank }: Division): Limits {
  const share: LimitShare = { rank, count: Math.max(1, ids.length) };
  return shareOfLimits(limits, share);
}

function least(one: Limits, other: Limits): Limits {
  const lesser = (a: number | undefined, b: number | undefined) =>
    a === undefined || b === undefined ? a : Math.min(a, b);
  const amount = lesser(one.budget?.amount, other.budget?.amount);
  return {
    requestsPerMinute: lesser(one.requestsPerMinute, other.requestsPerMinute),
    tokensPerMinute: lesser(one.tokensPerMinute, other.tokensPerMinute),
    concurrency: lesser(one.concurrency, other.concurrency),
    budget: one.budget && amount !== undefined ? { ...one.budget, amount } : undefined,
  };
}
