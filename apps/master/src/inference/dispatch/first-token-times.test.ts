import { expect, it } from "vitest";
import { FirstTokenTimes } from "./first-token-times.ts";

it("first-token times: what 9 of 10 calls had at most; none without calls", () => {
  const times = new FirstTokenTimes();
  expect(times.high(0)).toBeUndefined();
  for (const ms of [50, 10, 90, 30, 70, 20, 80, 40, 60]) times.add(ms, 0);
  expect(times.high(0)).toBe(90);
  times.add(100, 0);
  expect(times.high(0)).toBe(90);
  times.add(110, 0);
  expect(times.high(0)).toBe(100);
});

it("first-token times: of the last half minute", () => {
  const times = new FirstTokenTimes();
  times.add(100, 0);
  times.add(5, 1);
  expect(times.high(30_000)).toBe(100);
  expect(times.high(30_001)).toBe(5);
  expect(times.high(30_002)).toBeUndefined();
});

it("first-token times: of the latest 128 calls", () => {
  const times = new FirstTokenTimes();
  for (let call = 0; call < 128; call++) times.add(100, 0);
  for (let call = 0; call < 115; call++) times.add(1, 0);
  expect(times.high(0)).toBe(100);
  times.add(1, 0);
  expect(times.high(0)).toBe(1);
});
