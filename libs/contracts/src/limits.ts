/** Limits of keys, projects and models, and what calls cost. */

export const LIMITED_KINDS = ["key", "project", "model"] as const;
export type LimitedKind = (typeof LIMITED_KINDS)[number];

/** What limits are of: a key by its id, a project by its name, a model by its id. */
export interface LimitedSubject {
  readonly kind: LimitedKind;
  readonly name: string;
  /** The project that owns the model; absent for one of the whole cluster. */
  readonly project?: string | undefined;
}

/** `key:ID`, `project:NAME`, `model:ID` or, of a project's own model, `model:PROJECT ID`. */
export function subjectId({ kind, name, project }: LimitedSubject): string {
  return project === undefined ? `${kind}:${name}` : `${kind}:${project} ${name}`;
}

/** The subject of an id, whose parts have no spaces. */
export function limitedSubjectOf(id: string): LimitedSubject {
  const at = id.indexOf(":");
  const kind = id.slice(0, at) as LimitedKind;
  const [project, name] = id.slice(at + 1).split(" ");
  return name === undefined ? { kind, name: project! } : { kind, name, project };
}

/** Periods of budgets, in UTC. */
export const BUDGET_PERIODS = ["day", "month", "total"] as const;
export type BudgetPeriod = (typeof BUDGET_PERIODS)[number];

/** Absent means unlimited. */
export interface Limits {
  readonly requestsPerMinute?: number | undefined;
  readonly tokensPerMinute?: number | undefined;
  readonly concurrency?: number | undefined;
  readonly budget?: Budget | undefined;
}

export interface Budget {
  /** In nano-units of the currency, so that sums are exact. */
  readonly amount: number;
  readonly period: BudgetPeriod;
}

/** Nano-units of the currency for one token. */
export interface Prices {
  readonly input: number;
  readonly output: number;
}

/** Nano-units of one unit of the currency. */
export const NANOS = 1e9;
/** A price for a million tokens is a multiple of a thousandth: a whole number of nano-units a token. */
export const NANOS_PER_MILLION = 1e3;
/** The largest budget whose nano-units are exact. */
export const MAX_BUDGET = 9_000_000;
export const MAX_PRICE = 1_000_000;

/** What a call costs, in nano-units. */
export function costOf(
  prices: Prices | undefined,
  tokens: { readonly promptTokens: number; readonly completionTokens: number },
): number {
  if (!prices) return 0;
  return prices.input * tokens.promptTokens + prices.output * tokens.completionTokens;
}

/** The period that holds a time: `2026-11-23`, `2026-11` or `total`. */
export function periodOf(period: BudgetPeriod, atMs: number): string {
  if (period === "total") return period;
  return new Date(atMs).toISOString().slice(0, period === "day" ? 10 : 7);
}

/** When the period of a time ends; undefined for one that never does. */
export function periodEndMs(period: BudgetPeriod, atMs: number): number | undefined {
  const at = new Date(atMs);
  if (period === "total") return undefined;
  return period === "day"
    ? Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate() + 1)
    : Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1);
}
