// holds: serving-autoscale

import fc from "fast-check";
import { expect, test } from "vitest";
import {
  decideReplicas,
  isIdle,
  isPressed,
  isRelaxed,
  type ScalingTargets,
  type ServingLoad,
  type ServingTimes,
} from "./replica-count.ts";

const PRESSED_MS = 2_000;
const targets: fc.Arbitrary<ScalingTargets> = fc
  .record({
    min: fc.nat(4),
    more: fc.nat(6),
    idleMs: fc.option(fc.integer({ min: 1_000, max: 60_000 }), { nil: undefined }),
    targetQueue: fc.nat(8),
    targetTtftMs: fc.integer({ min: 10, max: 5_000 }),
    coolDownMs: fc.integer({ min: 1_000, max: 60_000 }),
  })
  .map(({ more, ...rest }) => ({ ...rest, max: Math.max(1, rest.min + more) }));
const load: fc.Arbitrary<ServingLoad> = fc
  .record({
    replicas: fc.nat(12),
    ready: fc.nat(12),
    queued: fc.nat(50),
    running: fc.nat(100),
    slots: fc.integer({ min: 1, max: 16 }),
    ttftMs: fc.option(fc.nat(10_000), { nil: undefined }),
  })
  .map((each) => ({ ...each, ready: Math.min(each.ready, each.replicas) }));
const times = fc.record({
  pressedMs: fc.nat(120_000),
  relaxedMs: fc.nat(120_000),
  idleMs: fc.nat(120_000),
  sinceChangeMs: fc.nat(120_000),
});

test("replica count: stays within its bounds, and goes to zero only when idle", () => {
  fc.assert(
    fc.property(load, targets, times, (l, t, s) => {
      const decided = decideReplicas(l, t, s);
      if (!decided) return;
      expect(decided.replicas).not.toBe(l.replicas);
      expect(decided.replicas).toBeGreaterThanOrEqual(t.min);
      expect(decided.replicas).toBeLessThanOrEqual(t.max);
      const mayBeZero = isIdle(l) && t.min === 0 && t.idleMs !== undefined && s.idleMs >= t.idleMs;
      if (decided.replicas === 0) expect(mayBeZero || l.replicas > t.max).toBe(true);
    }),
  );
});

test("replica count: a load is never both too high and low enough for one less", () => {
  fc.assert(
    fc.property(load, targets, (l, t) => {
      expect(isPressed(l, t) && isRelaxed(l, t)).toBe(false);
    }),
  );
});

test("replica count: only idleness and a wake-up skip the cool-down", () => {
  fc.assert(
    fc.property(load, targets, times, (l, t, s) => {
      const early = { ...s, sinceChangeMs: t.coolDownMs - 1 };
      const decided = decideReplicas(l, t, early);
      if (!decided || l.replicas < t.min || l.replicas > t.max) return;
      expect(l.replicas === 0 || decided.replicas === 0).toBe(true);
    }),
  );
});

test("replica count: goes up at most twofold and down by one", () => {
  fc.assert(
    fc.property(load, targets, times, (l, t, s) => {
      const decided = decideReplicas(l, t, s);
      if (!decided || l.replicas < Math.max(1, t.min) || l.replicas > t.max) return;
      if (decided.replicas === 0) return;
      expect(decided.replicas).toBeLessThanOrEqual(2 * l.replicas);
      expect(decided.replicas).toBeGreaterThanOrEqual(l.replicas - 1);
    }),
  );
});

test("replica count: a constant load settles, and changes at most once a cool-down", () => {
  const STEP_MS = 500;
  fc.assert(
    fc.property(fc.nat(60), targets, fc.integer({ min: 1, max: 8 }), (calls, t, slots) => {
      let replicas = Math.max(t.min, calls > 0 ? 1 : 0);
      let [pressedMs, relaxedMs, idleMs, sinceChangeMs] = [0, 0, 0, 0];
      let [changes, lastChangeMs] = [0, 0];
      const steps = (20 * (t.coolDownMs + PRESSED_MS)) / STEP_MS;
      for (let step = 0; step < steps; step++) {
        const running = Math.min(calls, replicas * slots);
        const now = { replicas, ready: replicas, running, queued: calls - running, slots };
        pressedMs = isPressed(now, t) ? pressedMs + STEP_MS : 0;
        relaxedMs = isRelaxed(now, t) ? relaxedMs + STEP_MS : 0;
        idleMs = isIdle(now) ? idleMs + STEP_MS : 0;
        sinceChangeMs += STEP_MS;
        const decided = decideReplicas(now, t, { pressedMs, relaxedMs, idleMs, sinceChangeMs });
        if (!decided) continue;
        replicas = decided.replicas;
        changes++;
        lastChangeMs = step * STEP_MS;
        [pressedMs, relaxedMs, sinceChangeMs] = [0, 0, 0];
      }
      expect(changes).toBeLessThanOrEqual(12);
      expect(lastChangeMs).toBeLessThan(Math.max(16 * (t.coolDownMs + PRESSED_MS), 61_000));
    }),
    { numRuns: 60 },
  );
});

test("replica count: zero after the idle time; a slow first token keeps a replica", () => {
  const targeted = { targetQueue: 2, targetTtftMs: 100, coolDownMs: 1_000 };
  const wanted: ScalingTargets = { min: 0, max: 4, idleMs: 5_000, ...targeted };
  const times = { pressedMs: 0, relaxedMs: 9_000, idleMs: 5_000, sinceChangeMs: 0 };
  const idle = { replicas: 2, ready: 2, queued: 0, running: 0, slots: 4, ttftMs: 90 };
  expect(decideReplicas(idle, wanted, times)).toEqual({ replicas: 0, reason: "idle for 5 s" });
  expect(decideReplicas(idle, wanted, { ...times, idleMs: 4_999 })).toBeUndefined();
  const slow = { ...idle, running: 1 };
  const relaxed = [idle, slow, { ...slow, ttftMs: 50 }].map((each) => isRelaxed(each, wanted));
  expect(relaxed).toEqual([true, false, true]);
});

const STEADY: ScalingTargets = {
  min: 1,
  max: 9,
  targetQueue: 2,
  targetTtftMs: 100,
  coolDownMs: 1_000,
};
/** How many replicas are wanted; of a load that has lasted by default. */
const wantedCount = (
  l: Partial<ServingLoad>,
  t: Partial<ScalingTargets> = {},
  s: Partial<ServingTimes> = {},
) => {
  const load = { replicas: 2, ready: 2, queued: 0, running: 0, slots: 4, ...l };
  const times = { pressedMs: 2_000, relaxedMs: 1_000, idleMs: 0, sinceChangeMs: 1_000, ...s };
  return decideReplicas(load, { ...STEADY, ...t }, times)?.replicas;
};

test("replica count: a call that waits where none runs starts one, or the minimum", () => {
  const none = { replicas: 0, ready: 0, queued: 1 };
  expect(wantedCount(none, { min: 0 }, { sinceChangeMs: 0 })).toBe(1);
  expect(wantedCount(none, { min: 3 })).toBe(3);
  expect(wantedCount({ ...none, queued: 0 }, { min: 0 })).toBeUndefined();
});

test("replica count: the bounds count at once", () => {
  const early = { sinceChangeMs: 0 };
  expect(wantedCount({}, { min: 3 }, early)).toBe(3);
  expect(wantedCount({ running: 8, queued: 9 }, { max: 1 }, early)).toBe(1);
  expect(wantedCount({ running: 3 }, { min: 2, max: 2 }, early)).toBeUndefined();
});

test("replica count: under pressure, slots for all calls, from one more to twofold", () => {
  const busy = { running: 8, queued: 5 };
  expect(wantedCount(busy)).toBe(4);
  expect(wantedCount({ ...busy, slots: 8 })).toBe(3);
  expect(wantedCount({ ...busy, slots: 5 })).toBe(3);
  expect(wantedCount(busy, { max: 3 })).toBe(3);
  expect(wantedCount(busy, { max: 2 })).toBeUndefined();
  // Not yet: the queue is within the target, a replica still loads, or the pressure is new.
  expect(wantedCount({ ...busy, queued: 4 })).toBeUndefined();
  expect(wantedCount({ ...busy, ready: 1 })).toBeUndefined();
  expect(wantedCount(busy, {}, { pressedMs: 1_999 })).toBeUndefined();
  expect(wantedCount(busy, {}, { sinceChangeMs: 999 })).toBeUndefined();
});

test("replica count: a slow first token is pressure where calls share a replica", () => {
  const slow = { running: 3, ttftMs: 101 };
  expect(wantedCount(slow)).toBe(3);
  expect(wantedCount({ ...slow, ttftMs: 100, running: 5 })).toBeUndefined();
  expect(wantedCount({ ...slow, running: 2 })).toBeUndefined();
  // Where no replica is ready, the target of one counts.
  const starting = { replicas: 1, ready: 0, slots: 4, running: 0 };
  expect([2, 3].map((queued) => isPressed({ ...starting, queued }, STEADY))).toEqual([false, true]);
});

test("replica count: one goes where 60 % of the others' slots suffice", () => {
  const three = { replicas: 3, ready: 3, running: 4 };
  expect(wantedCount(three)).toBe(2);
  expect(wantedCount({ ...three, running: 5 })).toBeUndefined();
  expect(wantedCount({ ...three, queued: 1 })).toBeUndefined();
  expect(wantedCount(three, { min: 3 })).toBeUndefined();
  expect(wantedCount(three, {}, { relaxedMs: 999 })).toBeUndefined();
  expect(wantedCount({ replicas: 1, ready: 1 }, { min: 0 })).toBeUndefined();
});
