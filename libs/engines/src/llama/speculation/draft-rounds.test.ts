// holds: engine-drafts

import { expect, it } from "vitest";
import type { TextSequence } from "../kv-cache/sequence.ts";
import type { ThreadSubmit } from "../protocol/thread-messages.ts";
import { testSequence } from "../testing/test-kv-cache.ts";
import { DraftRounds } from "./draft-rounds.ts";

/** A machine on which a call of one sequence takes 10 ms, and 4 ms more for each token of a draft. */
function machine(draftTokens = 47) {
  let nowMs = 0;
  const rounds = new DraftRounds({ draftTokens, contextTokens: 8_192 }, () => nowMs);
  const time = (drafted: number) =>
    rounds.timed({ drafted }, () => {
      nowMs += 10 + 4 * drafted;
    });
  for (const drafted of [0, 1, 3, 7, 15, 31, 47]) time(drafted);
  return rounds;
}

/** A sequence that has begun to repeat its first tokens, or one that repeats none. */
function sequenceOf(rounds: DraftRounds, isRepeating: boolean): TextSequence {
  const first = Array.from({ length: 80 }, (_, token) => token);
  const next = isRepeating ? first.slice(0, 4) : [100, 101, 102, 103];
  const sequence = testSequence(Int32Array.from([...first, ...next]));
  const drafter = rounds.drafterOf(sequence.tokens, 0);
  return { ...sequence, request: { maxTokens: 4_000 } as ThreadSubmit, drafter };
}

/** Computes the planned drafts, which are right, and gives how many tokens they had. */
function compute(rounds: DraftRounds, sequences: readonly TextSequence[]): number {
  let drafted = 0;
  for (const sequence of sequences) {
    rounds.computed(sequence);
    drafted += sequence.drafted;
    for (let isRight = true; isRight; ) {
      const token = sequence.tokens.length % 80;
      sequence.tokens.push(token);
      sequence.sampled++;
      isRight = rounds.accepts(sequence, token);
    }
    sequence.drafted = 0;
  }
  return drafted;
}

it("drafts side by side: sequences that repeat leave the call that all share", () => {
  const rounds = machine();
  const sequences = [true, true, true, false].map((each) => sequenceOf(rounds, each));
  let drafted = 0;
  for (let round = 0; round < 30; round++) {
    rounds.plan(sequences, { roundMs: 38 });
    drafted += compute(rounds, sequences.slice(0, 3));
    expect(sequences[3]?.drafted).toBe(0);
    expect(sequences.map((each) => rounds.isAlone(each, false))).not.toContain(true);
  }
  expect(drafted).toBeGreaterThan(100);
  expect(rounds.totals).toEqual({ drafted, accepted: drafted });
});

it("drafts side by side: none is made where all together cost little more than one", () => {
  const rounds = machine();
  const sequences = [true, true, true, true].map((each) => sequenceOf(rounds, each));
  for (let round = 0; round < 30; round++) {
    rounds.plan(sequences, { roundMs: 38 });
    compute(rounds, sequences);
  }
  expect(rounds.plan(sequences, { roundMs: 38 })).toBe(4 * 31);
  expect(rounds.plan(sequences, { roundMs: 14 })).toBe(0);
});

it("drafts side by side: the first of a length gets a timed call of its own", () => {
  const rounds = machine();
  const sequence = { ...sequenceOf(rounds, true), drafted: 11 };
  expect(rounds.isAlone(sequence, false)).toBe(true);
  rounds.timed(sequence, () => {});
  expect(rounds.isAlone(sequence, false)).toBe(false);
});

it("drafts side by side: leaving must save the others as much time as it takes", () => {
  const rounds = machine(1);
  const sequences = [true, true, true, true].map((each) => sequenceOf(rounds, each));
  for (let round = 0; round < 30; round++) {
    rounds.plan(sequences, { roundMs: 38 });
    compute(rounds, sequences);
  }
  // Two tokens in 14 ms are more than in two parts of 7.5 ms; the call for three is 6.7 ms shorter.
  expect(rounds.plan(sequences, { roundMs: 30 })).toBe(0);
  expect(rounds.plan(sequences, { roundMs: 34 })).toBe(4);
});

it("drafts side by side: none is made before both calls were timed", () => {
  const untimed = new DraftRounds({ draftTokens: 47, contextTokens: 8_192 }, () => 0);
  for (const [rounds, roundMs] of [
    [untimed, 19],
    [machine(), 0],
  ] as const) {
    const sequences = [true, true].map((each) => sequenceOf(rounds, each));
    for (let round = 0; round < 30; round++) {
      rounds.plan(sequences, { roundMs });
      expect(compute(rounds, sequences)).toBe(0);
    }
  }
});
