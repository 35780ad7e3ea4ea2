import { expect, test } from "vitest";
import { ACCOUNTING_WINDOW_MS, newProject, usageAt } from "./account-changes.ts";

const MINUTE_MS = 60_000;

test("usage: a new window counts only what was held since its start", () => {
  const { usage } = newProject("p", 0);
  const before = ACCOUNTING_WINDOW_MS - MINUTE_MS;
  const held = { ...usage, asOfMs: before, heldGpuMilli: 500, windowGpuMilliMs: 7_000_000 };
  const within = usageAt(held, ACCOUNTING_WINDOW_MS - 1);
  expect(within).toMatchObject({ windowStartMs: 0 });
  expect(within.windowGpuMilliMs).toBe(7_000_000 + 500 * (MINUTE_MS - 1));
  const next = usageAt(held, ACCOUNTING_WINDOW_MS + MINUTE_MS);
  expect(next.windowStartMs).toBe(ACCOUNTING_WINDOW_MS);
  expect(next.windowGpuMilliMs).toBe(500 * MINUTE_MS);
  const idle = usageAt({ ...held, heldGpuMilli: 0 }, 3 * ACCOUNTING_WINDOW_MS + 1);
  expect(idle).toMatchObject({ windowStartMs: 3 * ACCOUNTING_WINDOW_MS, windowGpuMilliMs: 0 });
});

test("usage: without a master it counts for one lease at most", () => {
  const { usage } = newProject("p", 0);
  const held = { ...usage, heldGpuMilli: 1_000 };
  expect(usageAt(held, 300_000).windowGpuMilliMs).toBe(1_000 * 300_000);
  expect(usageAt(held, 300_001).windowGpuMilliMs).toBe(1_000 * 300_000);
  expect(usageAt(held, 300_001)).toMatchObject({ asOfMs: 300_001, heldGpuMilli: 1_000 });
});
