import { describe, expect, it } from "vitest";
import { durationText } from "./rate-limit-headers.ts";

describe("durationText", () => {
  it.each([
    [0, "0s"],
    [0.2, "1ms"],
    [120, "120ms"],
    [1000, "1s"],
    [8640, "8.64s"],
    [60_000, "1m0s"],
    [360_000, "6m0s"],
    [3_600_000, "1h0m0s"],
    [3_661_500, "1h1m1.5s"],
  ])("%d ms is %s", (durationMs, text) => {
    expect(durationText(durationMs)).toBe(text);
  });
});
