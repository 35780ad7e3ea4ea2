// holds: artifacts-served

import { expect, test } from "vitest";
import { byteRange } from "./byte-range.ts";

test.each([
  ["bytes=0-", { offset: 0, maxBytes: 100 }],
  ["bytes=10-19", { offset: 10, maxBytes: 10 }],
  ["bytes=90-1000", { offset: 90, maxBytes: 10 }],
  ["bytes=-5", { offset: 95, maxBytes: 5 }],
  ["bytes=-500", { offset: 0, maxBytes: 100 }],
  ["bytes=99-99", { offset: 99, maxBytes: 1 }],
  ["bytes=100-", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
])("byte range: %s of 100 bytes is %j", (header, range) => {
  expect(byteRange(header, 100)).toEqual(range);
});

test.each([undefined, "", "bytes=-", "bytes=5-3", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b"])(
  "byte range: %j asks for all of it",
  (header) => {
    expect(byteRange(header, 100)).toBeUndefined();
  },
);

test("byte range: an empty artifact has none", () => {
  expect(byteRange("bytes=0-", 0)).toBe("unsatisfiable");
});
