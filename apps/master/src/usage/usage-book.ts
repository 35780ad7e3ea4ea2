import { type LimitedSubject, subjectId } from "@heddle/contracts/limits";
import type { UsageSum } from "@heddle/control/usage-sum";
import { dayOf, dayText, type UsageRow } from "./usage-row.ts";

type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Sums over all days; beyond it the oldest day is dropped. */
const MAX_SUMS = 200_000;
/** What calls are counted under where one day has more sums. */
const OTHER = "(other)";

type Sums = Map<string, Writable<UsageSum>>;

/** This master's usage, summed by key, project, model and day: in memory, and in files by day. */
export class UsageBook {
  readonly #days = new Map<number, Sums>();
  /** Keyed by subject and day, in nano-units. */
  readonly #costs = new Map<string, Map<number, number>>();
  /** Sums that the other masters do not have yet, by day. */
  readonly #changed = new Set<UsageSum>();
  #size = 0;

  get days(): readonly number[] {
    return [...this.#days.keys()];
  }

  record(row: UsageRow): void {
    this.add(sumOf(row));
  }

  add(sum: UsageSum): void {
    const { owner, project, model, isOwnModel } = sum;
    this.#addCost({ kind: "key", name: owner }, sum);
    this.#addCost({ kind: "project", name: project }, sum);
    this.#addCost({ kind: "model", name: model, project: isOwnModel ? project : undefined }, sum);
    const sums = this.#sumsOf(sum.day);
    const known = sums.get(nameOf(sum));
    if (known) {
      addTo(known, sum, 1);
      this.#changed.add(known);
    } else this.#addNew(sums, sum);
  }

  /** How many sums have changed since they were taken. */
  get changed(): number {
    return this.#changed.size;
  }

  /** Up to this number of the changed sums, as they are now. */
  takeChanged(most: number): UsageSum[] {
    const taken: UsageSum[] = [];
    for (const sum of this.#changed) {
      if (taken.length >= most) break;
      this.#changed.delete(sum);
      taken.push({ ...sum });
    }
    return taken;
  }

  /** Adds what a sum of this master has and the book lacks, as after the loss of its files. */
  raise(sum: UsageSum): void {
    const known = this.#days.get(sum.day)?.get(nameOf(sum));
    if (known && known.calls >= sum.calls) return;
    const lacking = { ...sum };
    if (known) addTo(lacking, known, -1);
    this.add(lacking);
  }

  /** Sums that did not reach the other masters have changed still. */
  putBack(sums: readonly UsageSum[]): void {
    for (const sum of sums) {
      const known = this.#days.get(sum.day)?.get(nameOf(sum));
      if (known) this.#changed.add(known);
    }
  }

  #addNew(sums: Sums, sum: UsageSum): void {
    if (this.#size >= MAX_SUMS) this.#dropOldest();
    const isFull = this.#size >= MAX_SUMS;
    const kept = isFull
      ? { ...sum, key: OTHER, owner: OTHER, project: OTHER, model: OTHER, isOwnModel: undefined }
      : { ...sum };
    const known = sums.get(nameOf(kept));
    if (known) {
      addTo(known, sum, 1);
      this.#changed.add(known);
      return;
    }
    sums.set(nameOf(kept), kept);
    this.#changed.add(kept);
    this.#size++;
  }

  /** What the calls of a subject have cost in a period such as `2026-11`, in nano-units. */
  costOf(subject: LimitedSubject, period: string) {
    let cost = 0;
    for (const [day, amount] of this.#costs.get(subjectId(subject)) ?? []) {
      if (period === "total" || dayText(day).startsWith(period)) cost += amount;
    }
    return cost;
  }

  /** The sums of the days from `from` to `to`. */
  *between(from: number, to: number): Generator<UsageSum, void> {
    for (const [day, sums] of this.#days) if (day >= from && day <= to) yield* sums.values();
  }

  /** The sums of a day without rows that are counted but not written. */
  without(day: number, rows: readonly UsageRow[]): UsageSum[] {
    const sums: Sums = new Map();
    for (const [name, sum] of this.#days.get(day) ?? []) sums.set(name, { ...sum });
    for (const row of rows) {
      const sum = sumOf(row);
      const known = sums.get(nameOf(sum));
      if (known) addTo(known, sum, -1);
    }
    return [...sums.values()].filter(({ calls }) => calls > 0);
  }

  drop(day: number): void {
    this.#size -= this.#days.get(day)?.size ?? 0;
    this.#days.delete(day);
    for (const [subject, days] of this.#costs) {
      days.delete(day);
      if (days.size === 0) this.#costs.delete(subject);
    }
  }

  /** The costs of the day stay: budgets count them. */
  #dropOldest(): void {
    const oldest = Math.min(...this.#days.keys());
    if (this.#days.size < 2) return;
    this.#size -= this.#days.get(oldest)?.size ?? 0;
    this.#days.delete(oldest);
  }

  #sumsOf(day: number): Sums {
    const known = this.#days.get(day);
    if (known) return known;
    const sums: Sums = new Map();
    this.#days.set(day, sums);
    return sums;
  }

  #addCost(subject: LimitedSubject, { day, cost }: UsageSum): void {
    if (cost === 0) return;
    const id = subjectId(subject);
    const days = this.#costs.get(id) ?? new Map<number, number>();
    this.#costs.set(id, days);
    days.set(day, (days.get(day) ?? 0) + cost);
  }
}

function sumOf(row: UsageRow): UsageSum {
  return {
    day: dayOf(row),
    key: row.key,
    owner: row.owner ?? row.key,
    // Rows of earlier versions have neither a project nor a cost.
    project: row.project ?? "default",
    model: row.model,
    ...(row.isOwnModel && { isOwnModel: true }),
    calls: 1,
    failed: row.errorCode === undefined ? 0 : 1,
    promptTokens: row.promptTokens,
    cachedTokens: row.cachedTokens,
    completionTokens: row.completionTokens,
    cost: row.cost ?? 0,
  };
}

function nameOf({ key, project, model, isOwnModel }: UsageSum): string {
  return `${key}\n${project}\n${model}${isOwnModel ? "\nown" : ""}`;
}

function addTo(sum: Writable<UsageSum>, other: UsageSum, sign: 1 | -1): void {
  sum.calls += sign * other.calls;
  sum.failed += sign * other.failed;
  sum.promptTokens += sign * other.promptTokens;
  sum.cachedTokens += sign * other.cachedTokens;
  sum.completionTokens += sign * other.completionTokens;
  sum.cost += sign * other.cost;
}
