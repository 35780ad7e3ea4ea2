// holds: api-responses

import { expect, it } from "vitest";
import { itemsWithIds } from "./chat-of-response.ts";
import { promptRoom, truncated } from "./truncation.ts";

type Given = Parameters<typeof itemsWithIds>[0][number];
const WORD_TOKENS = 10;
const FIXED_TOKENS = 40;

/** Each letter is an item: a rule, a turn, an answer, reasoning, a call of a or b, its output. */
const LETTERS: Readonly<Record<string, Given>> = {
  r: { role: "developer", content: "rule" },
  u: { role: "user", content: "turn" },
  m: { role: "assistant", content: "said" },
  t: { type: "reasoning", content: [{ type: "reasoning_text", text: "hm" }] },
  a: { type: "function_call", call_id: "a", name: "f", arguments: "{}" },
  A: { type: "function_call_output", call_id: "a", output: "done" },
  b: { type: "function_call", call_id: "b", name: "f", arguments: "{}" },
  B: { type: "function_call_output", call_id: "b", output: "done" },
};

async function left(letters: string, room: number) {
  const items = itemsWithIds(
    [...letters].map((letter) => LETTERS[letter] as Given),
    (prefix, at) => `${prefix}_${at}`,
  );
  const counted: number[] = [];
  const rest = await truncated(items, room, async (some) => {
    counted.push(FIXED_TOKENS + WORD_TOKENS * some.length);
    return counted.at(-1) as number;
  });
  const text = rest.map((item) => letters[items.indexOf(item)]).join("");
  return { text, counted };
}

it("truncation: what fits stays whole, and is counted once", async () => {
  expect(await left("umumu", 90)).toEqual({ text: "umumu", counted: [90] });
});

it.each([
  ["umumumu", 100, "umumu", "the oldest turns are left out whole"],
  ["rumumumu", 80, "rumu", "rules stay"],
  ["umrumu", 80, "rumu", "rules between turns stay"],
  ["uaAumu", 70, "umu", "a call goes with its output"],
  ["umuabABaA", 70, "aA", "the last turn is cut between its calls"],
  ["umuabAB", 80, "abAB", "calls side by side are not parted"],
  ["uuutaA", 60, "aA", "reasoning does not come first"],
  ["umu", 10, "u", "the last item stays, though it does not fit"],
  ["uaA", 10, "aA", "an output is never alone"],
])("truncation: %s in %i is %s: %s", async (letters, room, wanted) => {
  expect((await left(letters, room)).text).toBe(wanted);
});

it("truncation: a long conversation is counted a few times", async () => {
  const { text, counted } = await left("um".repeat(2_000), 4_000);
  expect(counted.length).toBeLessThanOrEqual(4);
  expect(text.length).toBeGreaterThan(350);
  expect(text.length).toBeLessThanOrEqual(396);
});

it("truncation: half of the context is the prompt's in any case", () => {
  expect([promptRoom(4_096), promptRoom(1_000), promptRoom(4_096, 4_000)]).toEqual([
    3_072, 500, 2_048,
  ]);
});
