import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { committedIndex, majorityCommittedIndex, voteResult } from "./quorum.ts";

const ids = fc.uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 9 });
const reached = fc.array(fc.nat(20), { minLength: 10, maxLength: 10 });

describe("quorums", () => {
  it("the committed index is the largest that a majority has reached", () => {
    fc.assert(
      fc.property(ids, reached, (voters, at) => {
        fc.pre(voters.length > 0);
        const index = majorityCommittedIndex(new Set(voters), (id) => at[id]);
        const reaching = (target: number) => voters.filter((id) => (at[id] ?? 0) >= target).length;
        expect(reaching(index) * 2).toBeGreaterThan(voters.length);
        expect(reaching(index + 1) * 2).toBeLessThanOrEqual(voters.length);
      }),
    );
  });

  it("a joint decision does not depend on which half is which", () => {
    const ballots = fc.array(fc.option(fc.boolean()), { minLength: 10, maxLength: 10 });
    fc.assert(
      fc.property(ids, ids, reached, ballots, (a, b, at, cast) => {
        const one = { incoming: new Set(a), outgoing: new Set(b) };
        const other = { incoming: new Set(b), outgoing: new Set(a) };
        const votes = new Map<number, boolean>();
        cast.forEach((vote, id) => {
          if (vote !== null) votes.set(id, vote);
        });
        expect(committedIndex(one, (id) => at[id])).toBe(committedIndex(other, (id) => at[id]));
        expect(voteResult(one, votes)).toBe(voteResult(other, votes));
      }),
    );
  });
});
