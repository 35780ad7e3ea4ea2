import { expect, test } from "vitest";
import { HiddenValues } from "./hidden-values.ts";

test("hidden values: each line is hidden, the longest first", () => {
  const hidden = new HiddenValues(["abcdef", "abcdefgh", "first line\nsecond line"]);
  expect(hidden.hide("x abcdefgh abcdef second line")).toBe("x *** *** ***");
  expect(hidden.hide("abcde")).toBe("abcde");
});

test("hidden values: short ones hide nothing", () => {
  const hidden = new HiddenValues(["1", "", "short"]);
  expect(hidden.isEmpty).toBe(true);
  expect(hidden.hide("1 short")).toBe("1 short");
});

test("hidden values: bytes around them stay as they are", () => {
  const hidden = new HiddenValues(["gehe\u00efm-$&"]);
  const bytes = Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("<gehe\u00efm-$&>")]);
  expect(hidden.hideBytes(bytes)).toEqual(
    Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("<***>")]),
  );
  expect(hidden.hideBytes(Buffer.from("other"))).toEqual(Buffer.from("other"));
});
