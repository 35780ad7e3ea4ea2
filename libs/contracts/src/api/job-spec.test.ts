import { expect, test } from "vitest";
import { submitJobRequest } from "./job-spec.ts";

const isName = (name: string) => submitJobRequest.shape.name.safeParse(name).success;

test.each([
  ["Persian, a non-joiner between letters", "می\u200cخواهم"],
  ["Hindi, a non-joiner behind a virama", "राज\u094d\u200cय"],
  ["Sinhala, a joiner behind a virama", "ශ\u0dca\u200dරී"],
  ["Malayalam, a joiner at the end of a word", "അവന\u0d4d\u200d"],
  ["Bengali, a joiner before a virama", "র\u200d\u09cdয"],
  ["an emoji of two people", "run \u{1f468}\u200d\u{1f469} 2"],
  ["an emoji with a colour of skin", "\u{1f469}\u{1f3fd}\u200d\u{1f52c}"],
])("name: joiners are accepted: %s", (_what, name) => {
  expect(isName(name)).toBe(true);
});

test.each([
  ["between Latin letters", "ad\u200cmin"],
  ["between digits", "1\u200d2"],
  ["at the beginning", "\u200dराज"],
  ["at the end", "می\u200c"],
  ["two of them", "می\u200c\u200cخواهم"],
  ["two behind a virama", "राज\u094d\u200d\u200dय"],
  ["behind one emoji", "\u{1f468}\u200d"],
  ["between Arabic and Latin", "می\u200cx"],
])("name: an invisible joiner is refused: %s", (_what, name) => {
  expect(isName(name)).toBe(false);
});
