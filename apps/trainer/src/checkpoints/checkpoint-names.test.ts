import { expect, test } from "vitest";
import { checkpointChoices } from "./checkpoint-names.ts";

test("choices: the named one and those before it, or newer ones where it is gone", () => {
  const names = ["a1-r000002-s1", "a2-r000004-s1", "a1-r000003-s2", "other", "a2-r000009-s1"];
  expect(checkpointChoices(names, "a1-r000003-s2").map(({ name }) => name)).toEqual([
    "a1-r000003-s2",
    "a1-r000002-s1",
  ]);
  // As after a restore: the checkpoint that the backup names was deleted since.
  expect(checkpointChoices(["a1-r000007-s1"], "a1-r000001-s1").map(({ name }) => name)).toEqual([
    "a1-r000001-s1",
    "a1-r000007-s1",
  ]);
  expect(checkpointChoices(names, "other")[0]?.name).toBe("a2-r000009-s1");
});
