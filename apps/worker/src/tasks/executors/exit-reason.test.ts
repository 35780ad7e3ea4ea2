import { expect, test } from "vitest";
import { exitReason } from "./exit-reason.ts";

// holds: train-corrupt
test("exit: damaged checkpoints are CheckpointCorrupt, with the trainer's message", () => {
  const words = "the task failed (invalid_value): no checkpoint can be used";
  const end = { exitCode: 66, isCheckpointCorrupt: true };
  const expected = { reason: "CheckpointCorrupt", message: words };
  expect(exitReason(end, ["before", words], undefined)).toEqual(expected);
});

test("exit: an unwritable file, or another failure, has the trainer's message", () => {
  const words =
    "the task failed (unavailable): cannot write the artifact a: ENOSPC; is the disk full?";
  const expected = { reason: "ExitCode", message: words };
  expect(exitReason({ exitCode: 74, hasReason: true }, ["x", words], undefined)).toEqual(expected);
  // The two streams are read separately, so the other's last line may be the last of all.
  const late = ["a", words, "resumed from checkpoint a1-r000005-s1"];
  expect(exitReason({ exitCode: 74, hasReason: true }, late, undefined)).toEqual(expected);
  const silent = { reason: "ExitCode", message: "the program ended with exit code 70" };
  expect(exitReason({ exitCode: 70, hasReason: true }, [], undefined)).toEqual(silent);
});

test.each([
  "the task failed (server_error): Array buffer allocation failed",
  "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 4294967296",
])("exit: last lines about memory are an OutOfMemory, with advice: %#", (words) => {
  const outOfMemory = {
    reason: "OutOfMemory",
    message: expect.stringContaining("resources.memory_gb"),
  };
  expect(exitReason({ exitCode: 1 }, [words, "    at a place"], undefined)).toEqual(outOfMemory);
  expect(exitReason({ exitCode: 70, hasReason: true }, ["  at", words], undefined)).toEqual(
    outOfMemory,
  );
});

// holds: task-exit-reason
test("exit: a shell's status for a signal is a code, with its likely meaning", () => {
  const message = (exitCode: number) => exitReason({ exitCode }, [], undefined).message;
  expect(message(137)).toMatch(/exit code 137, as a shell does whose last command .* SIGKILL$/);
  expect(message(3)).toMatch(/exit code 3$/);
});
