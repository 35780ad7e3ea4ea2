import { expect, test } from "vitest";
import { judge } from "./exit-reason.ts";

test("a task all of whose checkpoints are damaged ends as CheckpointCorrupt, in the trainer's words", () => {
  const words = "the trainer failed (invalid_value): no checkpoint can be used";
  const end = { exitCode: 66, isCheckpointCorrupt: true };
  const judged = { reason: "CheckpointCorrupt", message: words };
  expect(judge(end, ["before", words], undefined)).toEqual(judged);
});
