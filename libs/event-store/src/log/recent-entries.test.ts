import { expect, test } from "vitest";
import { RecentEntries } from "./recent-entries.ts";

const MAX_BYTES = 256 * 1024;
const ENTRY_BYTES = 500;
/** The size of a pooled buffer, most of which holds other data. */
const POOL_BYTES = 64 * 1024;

/** The bytes of all buffers that the entries are views of. */
function heldBytes(entries: readonly Uint8Array[] = []): number {
  const buffers = new Set(entries.map(({ buffer }) => buffer));
  return [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0);
}

test.each([1, 7, 400])("recent entries: %i at a time keep no more than their bytes", (group) => {
  const recent = new RecentEntries(0, MAX_BYTES);
  const added = 3 * (MAX_BYTES / ENTRY_BYTES);
  let number = 0;
  while (number < added) {
    const entries = Array.from({ length: group }, () => {
      const pool = new Uint8Array(POOL_BYTES);
      return pool.subarray(0, ENTRY_BYTES).fill(number++ % 256);
    });
    recent.add(entries);
  }
  const oldest = Array.from({ length: number }, (_, at) => at).find((at) => recent.from(at, 1, 1));
  const kept = recent.from(oldest ?? number, number, MAX_BYTES) ?? [];
  expect(kept.length).toBe(number - (oldest ?? number));
  expect(kept.length * ENTRY_BYTES).toBeGreaterThan(MAX_BYTES / 2 - POOL_BYTES);
  expect(kept.map((entry) => entry[ENTRY_BYTES - 1])).toEqual(
    kept.map((_, at) => ((oldest ?? 0) + at) % 256),
  );
  expect(heldBytes(kept)).toBeLessThanOrEqual(MAX_BYTES + POOL_BYTES);
});
