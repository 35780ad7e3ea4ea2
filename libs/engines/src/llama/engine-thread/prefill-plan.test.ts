// holds: engine-batching

import { describe, expect, it } from "vitest";
import { type Sequence } from "../kv-cache/sequence.ts";
import { TokenList } from "../kv-cache/token-list.ts";
import { planPrefill } from "./prefill-plan.ts";

/** Only what the plan reads. */
function prompt(length: number, admitted: number): Sequence {
  const tokens = new TokenList(new Int32Array(length), 0);
  return { tokens, admitted, rank: 0, computed: 0, planned: 0 } as Sequence;
}

describe("planPrefill", () => {
  it("lets a short prompt pass a long one that came before", () => {
    const [long, short] = [prompt(600, 1), prompt(8, 2)];
    expect(planPrefill([long, short], 128)).toBe(128);
    expect(short.planned).toBe(8);
    expect(long.planned).toBe(120);
  });

  it("keeps a quarter for the oldest, so that short ones cannot starve it", () => {
    const long = prompt(600, 1);
    const shorts = Array.from({ length: 10 }, (_, i) => prompt(64, 2 + i));
    planPrefill([long, ...shorts], 128);
    expect(long.planned).toBe(32);
  });

  it("plans nothing without a budget and forgets an earlier plan", () => {
    const only = prompt(10, 1);
    planPrefill([only], 5);
    expect(only.planned).toBe(5);
    expect(planPrefill([only], 0)).toBe(0);
    expect(only.planned).toBe(0);
  });

  it("never plans more than a prompt has left", () => {
    const only = prompt(10, 1);
    expect(planPrefill([only], 512)).toBe(10);
  });
});
