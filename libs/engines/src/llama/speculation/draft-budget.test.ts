// holds: engine-drafts

import { expect, it } from "vitest";
import { TokenList } from "../kv-cache/token-list.ts";
import { DraftBudget } from "./draft-budget.ts";
import { DraftRates } from "./draft-rates.ts";
import { Drafter, type DraftRecord, MAX_DRAFT_TOKENS } from "./drafter.ts";

/** Rates that promise all of each draft, whatever is learned. */
class BlindRates extends DraftRates {
  override of(): number {
    return 1;
  }
  override learn(): void {}
  override ofText(): DraftRates {
    return this;
  }
}

const GREEDY = { firstWeight: 2, caution: 0 };
const costOf = (drafted: number) => 1 + 0.4 * drafted;

/** Decodes a text that repeats its prompt in all but every `period`th token; gives calls lost per token. */
function lossOf(record: DraftRecord, period: number, length: number): number {
  const prompt = Array.from({ length: 64 }, (_, token) => token);
  const text = new TokenList(Int32Array.from([...prompt, ...prompt.slice(0, 4)]), 4);
  const drafter = new Drafter(text, record);
  let calls = 0;
  for (let at = 0; at < length; ) {
    const drafted = drafter.propose(MAX_DRAFT_TOKENS, costOf);
    calls += costOf(drafted);
    if (drafted > 0) drafter.computed();
    for (let isRight = true; isRight && at < length; at++) {
      const token = at % period === period - 1 ? 1_000 + at : text.length % 64;
      text.push(token);
      isRight = drafter.accepts(token);
    }
  }
  return (calls - length) / length;
}

it("draft budget: failing drafts cost a hundredth, whatever the rates promise", () => {
  const record = { rates: new BlindRates(GREEDY), budget: new DraftBudget(24) };
  // The first text of all may lose a draft beyond that, later ones a short one.
  expect(lossOf(record, 4, 100)).toBeLessThan(0.091);
  for (let text = 0; text < 20; text++) expect(lossOf(record, 4, 100)).toBeLessThan(0.026);
  expect(lossOf(record, 4, 4_000)).toBeLessThan(0.012);
});

it("draft budget: after failing texts one that repeats its prompt is soon fast again", () => {
  const record = { rates: new BlindRates(GREEDY), budget: new DraftBudget(24) };
  for (let text = 0; text < 20; text++) lossOf(record, 4, 100);
  expect(lossOf(record, 1_000, 200)).toBeLessThan(-0.4);
});

it("draft budget: predictions that were right without a draft allow one", () => {
  const text = new DraftBudget(24).ofText();
  text.spend(10);
  for (let token = 0; token < 40; token++) text.sampled(false, true);
  expect(text.calls).toBeGreaterThan(1.5);
});

it("draft rates: with caution a mean of few tokens is taken lower than one of many", () => {
  const rates = new DraftRates({ firstWeight: 4, caution: 1 });
  const mean = new DraftRates({ firstWeight: 4, caution: 0 });
  const marginOf = () => mean.of(5) - rates.of(5);
  const first = marginOf();
  expect(first).toBeGreaterThan(0.2);
  for (let token = 0; token < 60; token++) {
    for (const each of [rates, mean]) each.learn(5, token % 5 < 3);
  }
  expect(marginOf()).toBeLessThan(first / 2);
});

it("draft budget: what is kept of gains and losses is bounded", () => {
  const budget = new DraftBudget(24);
  for (let token = 0; token < 1_000; token++) budget.sampled(true, true);
  expect(budget.calls).toBe(24);
  for (let draft = 0; draft < 100; draft++) budget.spend(10);
  expect(budget.calls).toBe(-24);
  expect(budget.ofText().calls).toBe(1.5);
});
