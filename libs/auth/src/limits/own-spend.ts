import { type BudgetPeriod, periodOf, subjectId } from "@heddle/contracts/limits";
import type { Subject } from "./limit-store.ts";

export interface OwnSpendOptions {
  /** What this master's ended calls have cost in a period, in nano-units. */
  readonly history: (subject: Pick<Subject, "kind" | "name">, period: string) => number;
  /** Milliseconds since the epoch. */
  readonly wallNow: () => number;
  /** Bound on the subjects that are kept; those without a running call are dropped first. */
  readonly maxSubjects: number;
}

interface Spend {
  period: string;
  /** The spend of ended calls. */
  settled: number;
  /** The spend that is reserved for running calls. */
  reserved: number;
  running: number;
}

/** What the calls of this master have spent of budgets, with what running ones may spend. */
export class OwnSpend {
  readonly #options: OwnSpendOptions;
  readonly #spends = new Map<string, Spend>();

  constructor(options: OwnSpendOptions) {
    this.#options = options;
  }

  /** The present period of a budget. */
  periodOf(period: BudgetPeriod): string {
    return periodOf(period, this.#options.wallNow());
  }

  of(subject: Subject): number {
    const { settled, reserved } = this.#spendOf(subject);
    return settled + reserved;
  }

  begin(subject: Subject): void {
    if (subject.limits.budget) this.#spendOf(subject).running++;
  }

  /** Changes what a running call reserves. */
  reserve(subject: Subject, amount: number): void {
    if (subject.limits.budget) this.#spendOf(subject).reserved += amount;
  }

  /** Ends a running call that had reserved an amount and has spent another. */
  end(subject: Subject, reserved: number, spent: number): void {
    if (!subject.limits.budget) {
      this.#endUnlimited(subject, spent);
      return;
    }
    const spend = this.#spendOf(subject);
    spend.reserved -= reserved;
    spend.settled += spent;
    spend.running--;
  }

  /** A call without a budget counts for one that was set before and may be set again. */
  #endUnlimited(subject: Subject, spent: number): void {
    const spend = this.#spends.get(subjectId(subject));
    if (spend) spend.settled += spent;
  }

  #spendOf(subject: Subject): Spend {
    const id = subjectId(subject);
    const period = this.periodOf(subject.limits.budget?.period ?? "total");
    let spend = this.#spends.get(id);
    if (spend?.period === period) return spend;
    const settled = this.#options.history(subject, period);
    if (spend) {
      spend.period = period;
      spend.settled = settled;
      return spend;
    }
    if (this.#spends.size >= this.#options.maxSubjects) this.#forgetIdle();
    spend = { period, settled, reserved: 0, running: 0 };
    this.#spends.set(id, spend);
    return spend;
  }

  /** The history has what an idle subject has spent. */
  #forgetIdle(): void {
    for (const [id, { running }] of this.#spends) if (running === 0) this.#spends.delete(id);
  }
}
