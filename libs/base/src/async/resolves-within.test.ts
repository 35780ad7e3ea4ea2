import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { resolvesWithin } from "./resolves-within.ts";

describe("a time limit", () => {
  it("is true for work that resolves, and leaves no timer", async () => {
    vi.useFakeTimers();
    try {
      expect(await resolvesWithin(Promise.resolve("done"), 60_000)).toBe(true);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it("is false for work that takes longer, also where that rejects later", async () => {
    const failing = delay(50).then(() => {
      throw new Error("too late");
    });
    expect(await resolvesWithin(failing, 5)).toBe(false);
    await expect(failing).rejects.toThrow("too late");
  });

  it("passes on a rejection", async () => {
    const failed = resolvesWithin(Promise.reject(new Error("broken")), 60_000);
    await expect(failed).rejects.toThrow("broken");
  });
});
