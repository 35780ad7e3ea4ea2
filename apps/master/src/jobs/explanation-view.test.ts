import { expect, test } from "vitest";
import { blockerText } from "./explanation-view.ts";

test("GPUs are told as they are asked for, not in thousandths", () => {
  const gpus = { resource: "gpu_milli", requested: 8_000, free: 2_500, limit: 4_000 };
  expect(blockerText({ reason: "InsufficientGpu", ...gpus })).toBe(
    "InsufficientGpu: 8 GPUs requested, 2.5 free of 4",
  );
  expect(blockerText({ reason: "Fragmented", ...gpus, requested: 1_000 })).toMatch(
    /^Fragmented: 1 GPU requested; 2.5 of 4 are free, but not together/,
  );
});

test("a backoff is told as the time that is left and when it ends", () => {
  const limit = Date.UTC(2026, 0, 1);
  const backoff = { resource: "ms_to_wait", requested: 615, free: 0, limit };
  expect(blockerText({ reason: "Backoff", ...backoff })).toBe(
    "Backoff: 0.615 s to wait after the last failure, until 2026-01-01T00:00:00.000Z",
  );
});

test("any other amount bears its resource's name", () => {
  const memory = { resource: "memory_mib", requested: 10, free: 2, limit: 4 };
  expect(blockerText({ reason: "InsufficientMemory", ...memory })).toBe(
    "InsufficientMemory: memory_mib 10 requested, 2 free of 4",
  );
});
