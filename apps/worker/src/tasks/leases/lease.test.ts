// holds: task-lease

import fc from "fast-check";
import { expect, test } from "vitest";
import { Lease } from "./lease.ts";

test("lease: holds at most its span after an answered request", () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 0, max: 2_000 }) }),
    fc.record({ do: fc.constant("ask" as const) }),
    /** Answers to any request, late or out of order, repeated, or never requested. */
    fc.record({ do: fc.constant("renew" as const), request: fc.integer({ min: 0, max: 40 }) }),
    fc.record({ do: fc.constant("begin" as const) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let nowMs = 0;
      const lease = new Lease({ monotonicMs: () => nowMs });
      const askedAtMs = new Map<number, number>();
      let bestMs = Number.NEGATIVE_INFINITY;
      lease.begin(1_000);
      for (const each of steps) {
        if (each.do === "wait") nowMs += each.ms;
        else if (each.do === "ask") askedAtMs.set(lease.ask(), nowMs);
        else if (each.do === "begin") lease.begin(1_000);
        else {
          lease.renew(each.request);
          bestMs = Math.max(bestMs, askedAtMs.get(each.request) ?? Number.NEGATIVE_INFINITY);
        }
        expect(lease.isLive && nowMs >= bestMs + 1_000).toBe(false);
      }
    }),
    { numRuns: 2_000 },
  );
});

test("lease: an answer that is read after the expiry renews nothing", () => {
  let nowMs = 0;
  const lease = new Lease({ monotonicMs: () => nowMs });
  lease.begin(1_000);
  const first = lease.ask();
  nowMs = 100;
  lease.renew(first);
  expect(lease.expiresAtMs).toBe(1_000);
  const second = lease.ask();
  nowMs = 60_000;
  lease.renew(second);
  expect(lease.isLive).toBe(false);
});

test("lease: requests to an earlier leader do not count", () => {
  const lease = new Lease({ monotonicMs: () => 0 });
  lease.begin(1_000);
  const request = lease.ask();
  lease.begin(1_000);
  lease.renew(request);
  expect(lease.isLive).toBe(false);
});

test("lease: a later leader's shorter one does not end an earlier one", () => {
  let nowMs = 0;
  const lease = new Lease({ monotonicMs: () => nowMs });
  lease.begin(1_000);
  lease.renew(lease.ask());
  lease.begin(100);
  nowMs = 10;
  lease.renew(lease.ask());
  expect(lease.expiresAtMs).toBe(1_000);
  nowMs = 950;
  lease.renew(lease.ask());
  expect(lease.expiresAtMs).toBe(1_050);
});

// holds: life-mass-silence
test("lease: one of 150 s survives 140 s without a master, from any moment", () => {
  let nowMs = 0;
  const lease = new Lease({ monotonicMs: () => nowMs });
  lease.begin(150_000);
  lease.renew(lease.ask());
  nowMs = lease.renewEveryMs;
  expect(lease.expiresAtMs - nowMs).toBeGreaterThanOrEqual(140_000);
  lease.ask();
  expect(lease.renewEveryMs).toBe(1_000);
});
