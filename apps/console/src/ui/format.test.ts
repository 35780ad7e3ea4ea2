import { expect, test } from "vitest";
import { formatAgo, formatBytes, formatCompact, formatSpan, withoutColours } from "./format.ts";

test("format: bytes are in decimal units with three digits", () => {
  expect([0, 999, 1_000, 1_234_567, 85_899_345_920].map(formatBytes)).toEqual([
    "0 B",
    "999 B",
    "1 KB",
    "1.23 MB",
    "85.9 GB",
  ]);
});

test("format: large numbers are short, small ones as they are", () => {
  expect([0, 3.456789, 999, 1_250, 3_400_000].map(formatCompact)).toEqual([
    "0",
    "3.46",
    "999",
    "1.25K",
    "3.4M",
  ]);
});

test("format: a span has its two largest units", () => {
  const seconds = [0, 59, 60, 3_725, 86_400, 90_061];
  expect(seconds.map((each) => formatSpan(each * 1_000))).toEqual([
    "0 s",
    "59 s",
    "1 min",
    "1 h 2 min",
    "1 d",
    "1 d 1 h",
  ]);
});

test("format: a time is shown as its age, and as just now within seconds", () => {
  const now = Date.parse("2026-11-28T04:00:00Z");
  expect(formatAgo("2026-11-28T03:59:58Z", now)).toBe("just now");
  expect(formatAgo("2026-11-28T02:55:00Z", now)).toBe("1 h ago");
});

test("format: output loses the codes of colours, and nothing else", () => {
  expect(withoutColours("\u001b[31mred\u001b[0m [31m")).toBe("red [31m");
});
