import type { Hold, SubjectView } from "@heddle/auth/limits/limit-store";
import { costOf, type Prices } from "@heddle/contracts/limits";
import { rateLimitHeaders } from "./rate-limit-headers.ts";

export interface CallTokenCounts {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** The project of keys that name none. */
export const DEFAULT_PROJECT = "default";

const NONE: CallTokenCounts = { promptTokens: 0, completionTokens: 0 };

/** An admitted call's part of all limits that it counts for. `finish` must end it. */
export class CallReservation {
  readonly #holds: Hold[];
  #prices: Prices | undefined;
  #isHandedOver = false;

  /** `owner`: the first of the keys that the caller's replaced. */
  constructor(
    hold: Hold,
    readonly owner: string,
  ) {
    this.#holds = [hold];
  }

  /** Whether a call has taken it over, whose end finishes it; otherwise the request's end does. */
  get isHandedOver(): boolean {
    return this.#isHandedOver;
  }

  get holds(): readonly Hold[] {
    return this.#holds;
  }

  /** Takes over for a call of a model. */
  handOver(hold: Hold | undefined, prices: Prices | undefined): void {
    this.#isHandedOver = true;
    this.#prices = prices;
    if (hold) this.#holds.push(hold);
  }

  /** What that many tokens cost, in nano-units. */
  costOf(tokens: CallTokenCounts): number {
    return costOf(this.#prices, tokens);
  }

  /** Replaces the reserved tokens by a better estimate. */
  correct(tokens: CallTokenCounts): void {
    for (const hold of this.#holds) hold.correct(this.#amountsOf(tokens));
  }

  finish(tokens: CallTokenCounts = NONE): void {
    for (const hold of this.#holds) hold.finish(this.#amountsOf(tokens));
  }

  cancel(): void {
    for (const hold of this.#holds) hold.cancel();
  }

  headers(): Record<string, string> {
    return headersOf(this.#holds.flatMap((hold) => hold.views()));
  }

  #amountsOf(tokens: CallTokenCounts) {
    const spend = this.costOf(tokens);
    return { tokens: tokens.promptTokens + tokens.completionTokens, spend };
  }
}

/** The headers of the tightest limits. */
export function headersOf(views: readonly SubjectView[]): Record<string, string> {
  const [first] = views;
  if (!first) return {};
  if (views.length === 1) return rateLimitHeaders(first);
  const least = (name: keyof SubjectView) =>
    views.map((view) => view[name]).reduce((a, b) => (b.remaining < a.remaining ? b : a));
  return rateLimitHeaders({ requests: least("requests"), tokens: least("tokens") });
}
