import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { checkLogFits, heapMibFor, loadableBytes, stateRoomMib } from "./state-memory.ts";

const MEBIBYTE = 2 ** 20;

test("state memory: the heap that a value of state_mib needs has room for it, twice", () => {
  for (const value of [16, 100, 1_024, 50_000]) {
    const heap = heapMibFor(value) * MEBIBYTE;
    expect(stateRoomMib(heap)).toBeGreaterThanOrEqual(value);
    expect(loadableBytes(heap)).toBeGreaterThanOrEqual(2 * value * MEBIBYTE);
  }
  expect(stateRoomMib(2_000 * MEBIBYTE)).toBeLessThan(700);
  // The least that the setting may be.
  expect(stateRoomMib(10 * MEBIBYTE)).toBe(16);
  expect(loadableBytes(10 * MEBIBYTE)).toBe(0);
});

test("state memory: a log larger than its share of the heap is refused, not read", async () => {
  const directory = mkdtempSync(join(tmpdir(), "heddle-log-"));
  await checkLogFits(directory, 0);
  mkdirSync(join(directory, "wal"));
  for (const name of ["1", "2"]) {
    writeFileSync(join(directory, "wal", name), Buffer.alloc(MEBIBYTE));
  }
  await checkLogFits(directory, 2 * MEBIBYTE);
  await expect(checkLogFits(directory, 2 * MEBIBYTE - 1)).rejects.toMatchObject({
    code: "insufficient_memory",
    message: expect.stringContaining("takes 2 MiB"),
  });
  rmSync(directory, { recursive: true });
});
