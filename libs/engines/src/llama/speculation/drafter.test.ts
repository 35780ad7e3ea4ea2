// holds: engine-drafts

import { seededRandom } from "@heddle/base/random";
import { expect, it } from "vitest";
import { TokenList } from "../kv-cache/token-list.ts";
import { DraftBudget } from "./draft-budget.ts";
import { DraftCost } from "./draft-cost.ts";
import { DraftRates } from "./draft-rates.ts";
import { Drafter, type DraftRecord, MAX_DRAFT_TOKENS } from "./drafter.ts";
import { LookupIndex } from "./lookup-index.ts";

/** What drafts that saved `saved` calls leave. */
function recordOf(saved = 0): DraftRecord {
  const budget = new DraftBudget(24);
  for (let call = 0; call < saved; call++) budget.sampled(true, true);
  return { rates: new DraftRates({ firstWeight: 2, caution: 0 }), budget };
}

/** Decodes `answer` after `prompt`; gives the calls it took, and the tokens that were drafted. */
function decode(
  prompt: readonly number[],
  answer: readonly number[],
  cost = 0.4,
  all = recordOf(),
) {
  const text = new TokenList(Int32Array.from(prompt), 4);
  const drafter = new Drafter(text, all);
  const costOf = (length: number) => 1 + cost * length;
  let calls = 0;
  let drafted = 0;
  for (let at = 0; at < answer.length; calls++) {
    const draft = drafter.propose(MAX_DRAFT_TOKENS, costOf);
    expect(draft).toBeLessThanOrEqual(MAX_DRAFT_TOKENS);
    drafted += draft;
    if (draft > 0) drafter.computed();
    let isRight = true;
    for (let row = 0; isRight && at < answer.length; row++) {
      expect(row).toBeLessThanOrEqual(draft);
      const token = answer[at++] as number;
      text.push(token);
      isRight = drafter.accepts(token);
    }
  }
  return { calls, drafted };
}

const random = seededRandom(5);
const tokens = (count: number, below: number) =>
  Array.from({ length: count }, () => Math.floor(random() * below));

it("draft: a text that repeats its prompt takes a fraction of the calls", () => {
  const prompt = tokens(400, 5_000);
  expect(decode(prompt, prompt.slice(100, 300)).calls).toBeLessThan(50);
});

it("draft: a text begins with the rates of the texts before it", () => {
  const all = recordOf();
  const copied = tokens(400, 5_000);
  const first = decode(copied, copied.slice(100, 300), 0.4, all).calls;
  expect(decode(copied, copied.slice(100, 300), 0.4, all).calls).toBeLessThan(first - 4);
  // Where predictions failed before, a match that is as long is not tried.
  const failing = recordOf(100);
  for (let text = 0; text < 20; text++) failing.rates.learn(5, false);
  const text = new TokenList(Int32Array.from([...copied, ...copied.slice(0, 40)]), 4);
  const cheap = (length: number) => 1 + 0.2 * length;
  const draft = (record: DraftRecord) => new Drafter(text, record).propose(MAX_DRAFT_TOKENS, cheap);
  expect(draft(failing)).toBe(0);
  expect(draft(all)).toBe(MAX_DRAFT_TOKENS);
});

it("draft: a text that repeats nothing has none", () => {
  expect(decode(tokens(400, 5_000), tokens(400, 5_000))).toEqual({ calls: 400, drafted: 0 });
});

it("draft: chance repetitions cost next to nothing", () => {
  // With 6 tokens nearly each three occur before, and predict the next one as well as a die.
  const { calls, drafted } = decode(tokens(2_000, 6), tokens(2_000, 6));
  expect(calls + 0.4 * drafted).toBeLessThan(1.03 * 2_000);
});

it("draft: none is made where a token costs as much as a call", () => {
  const prompt = tokens(400, 5_000);
  expect(decode(prompt, prompt, 1)).toEqual({ calls: 400, drafted: 0 });
});

it("look-up: finds the longest of the latest places, as a search of all does", () => {
  const text = new TokenList(new Int32Array(0), 0);
  const index = new LookupIndex(text);
  for (const token of tokens(3_000, 40)) {
    text.push(token);
    const { values, length } = text;
    const matchAt = (place: number) => {
      let match = 0;
      while (
        match < Math.min(32, place) &&
        values[place - 1 - match] === values[length - 1 - match]
      )
        match++;
      return match;
    };
    const found = index.find();
    const places = Array.from({ length }, (_, place) => place).filter((p) => matchAt(p) >= 3);
    const latest = places.slice(-8).reverse();
    const match = Math.max(0, ...latest.map(matchAt));
    if (latest.length === 0) expect(found).toBeUndefined();
    else if (places.length <= 4) {
      expect(found).toEqual({ place: latest.find((p) => matchAt(p) === match), match });
    }
  }
});

it("draft: its length is the one that promises the most tokens for its measured cost", () => {
  const prompt = tokens(400, 5_000);
  const drafter = new Drafter(
    new TokenList(Int32Array.from([...prompt, ...prompt.slice(0, 20)]), 4),
    recordOf(100),
  );
  const lengthAt = (costs: Readonly<Record<number, number>>) => {
    for (let learned = 0; learned < 60; learned++) {
      drafter.propose(MAX_DRAFT_TOKENS, (length) => costs[length] ?? 100);
      drafter.accepts(prompt[20] as number);
    }
    return drafter.propose(MAX_DRAFT_TOKENS, (length) => costs[length] ?? 100);
  };
  expect(lengthAt({ 3: 3.2, 7: 4.6, 11: 5.9, 15: 7.1 })).toBe(15);
  expect(lengthAt({ 3: 3.2, 7: 4.6, 11: 9, 15: 12 })).toBe(7);
  expect(lengthAt({ 3: 4, 7: 8, 11: 12, 15: 16 })).toBe(0);
  expect(drafter.propose(5, (length) => 1 + length / 4)).toBe(3);
});

it("draft cost: measured by length from calls with and without a draft", () => {
  const cost = new DraftCost();
  expect(cost.isTimingDue()).toBe(true);
  cost.measured(0, 20);
  for (let call = 0; call < 40; call++) cost.measured(7, 20 + 7 * 5);
  expect(cost.of(7)).toBeCloseTo(1 + 7 * 0.25, 2);
  // Of a call with four sequences each has a quarter: 1.75 / 4 of a call of one.
  expect(cost.of(7, 4)).toBeCloseTo(1 + (7 * 0.25) / (1.75 / 4), 1);
  // Of a length that was not measured no more than of those that were.
  expect(cost.of(15)).toBeCloseTo(1 + 15 * 0.25, 2);
  for (let call = 0; call < 60; call++) cost.measured(3, 1_000);
  expect(cost.of(3)).toBeCloseTo(1 + 3 * 1.5, 1);
  expect(cost.of(7)).toBeCloseTo(1 + 7 * 0.25, 2);
});

it("draft: a text that repeats its last token is drafted as far as a call takes", () => {
  const text = tokens(40, 5_000);
  const { calls } = decode(text, Array<number>(200).fill(7), 0.2);
  expect(calls).toBeLessThan(60);
});

it("draft cost: a length that is too slow is seldom tried again", () => {
  const cost = new DraftCost();
  cost.measured(0, 7.5);
  let tried = 0;
  for (let call = 0; call < 1_000; call++) {
    // As a drafter that is sure of the next token decides.
    const isTried = 2 / cost.of(1) > 1.05;
    if (isTried) tried++;
    cost.measured(isTried ? 1 : 0, isTried ? 26 : 7.5);
  }
  expect(tried).toBeLessThan(15);
});

it("draft cost: a stall of the machine changes little", () => {
  const cost = new DraftCost();
  cost.measured(0, 20);
  for (let call = 0; call < 20; call++) cost.measured(7, call % 4 === 0 ? 500 : 20 + 7 * 5);
  expect(cost.of(7)).toBeLessThan(1 + 7 * 0.35);
});

it("draft cost: a length that once was slow is tried again later", () => {
  const cost = new DraftCost();
  cost.measured(0, 20);
  for (let call = 0; call < 40; call++) cost.measured(7, 1_000);
  // As a drafter that is sure of the next tokens decides.
  const isTried = () => 8 / cost.of(7) > 1.05;
  expect(isTried()).toBe(false);
  for (let call = 0; call < 300; call++) cost.measured(0, 20);
  expect(isTried()).toBe(true);
});
