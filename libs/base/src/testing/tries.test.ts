import { setTimeout as delay } from "node:timers/promises";
import { expect, it } from "vitest";
import { atLeastFourOfFive } from "./tries.ts";

/** Tries as the letters say, `s` for a failure while the machine is blocked; returns how many. */
async function triesOf(letters: string): Promise<number> {
  let tried = 0;
  await atLeastFourOfFive(
    async () => letters[tried++] === "+",
    async () => (letters[tried - 1] === "s" ? 300 : 0),
  );
  return tried;
}

it.each(["++++", "-++++", "+++-+", "s+s++-+"])("tries: %s is enough", async (letters) => {
  expect(await triesOf(letters)).toBe(letters.length);
});

it.each(["--++++", "+++--+", "s-ss-++++"])("tries: %s is too little", async (letters) => {
  await expect(triesOf(letters)).rejects.toThrow("tries");
});

it("tries: a failure while a timer is late does not count", async () => {
  let tried = 0;
  await atLeastFourOfFive(async () => {
    if (++tried > 3) return true;
    await delay(20);
    for (const endMs = performance.now() + 300; performance.now() < endMs; );
    return false;
  });
  expect(tried).toBe(7);
});
