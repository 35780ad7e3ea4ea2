import { describe, expect, it } from "vitest";
import { EMPTY_CONF_STATE } from "../core/state.ts";
import { type Entry, entryBytes, limitEntries } from "./entry.ts";
import { MemoryStorage } from "./memory-storage.ts";

describe("entries in memory", () => {
  const entry = (index: number, term = 1, size = 3): Entry => ({
    index,
    term,
    type: "EntryNormal",
    data: new Uint8Array(size),
  });

  it("are limited by their encoded size, but to one at least", () => {
    const entries = [entry(1), entry(2), entry(3)];
    const size = entryBytes(entry(1));
    expect(size).toBe(9);
    expect(limitEntries(entries, 0)).toHaveLength(1);
    expect(limitEntries(entries, 2 * size - 1)).toHaveLength(1);
    expect(limitEntries(entries, 2 * size)).toHaveLength(2);
    expect(limitEntries([], 5)).toEqual([]);
  });

  it("are replaced from the first new one on, and must be contiguous", () => {
    const storage = new MemoryStorage();
    storage.append([entry(1), entry(2), entry(3)]);
    storage.append([entry(2, 2)]);
    expect([storage.lastIndex(), storage.term(2), storage.term(3)]).toEqual([2, 2, "unavailable"]);
    expect(() => storage.append([entry(9)])).toThrow("leaves a gap");
  });

  it("are gone after compaction, except the term of the last one", () => {
    const storage = new MemoryStorage();
    storage.append([entry(1), entry(2), entry(3, 2)]);
    expect(storage.compact(2)).toBe(true);
    expect(storage.compact(2)).toBe(false);
    expect([storage.firstIndex(), storage.term(2), storage.term(1)]).toEqual([3, 1, "compacted"]);
    expect(storage.entries(2, 4, 100)).toBe("compacted");
    expect(storage.entries(3, 9, 100)).toBe("unavailable");
    storage.append([entry(2), entry(3, 2)]);
    expect(storage.lastIndex()).toBe(3);
    expect(() => storage.compact(9)).toThrow("no entry 9");
  });

  it("at the end are as many as fit in the bytes, from an index on", () => {
    const storage = new MemoryStorage();
    storage.append([1, 2, 3, 4, 5].map((index) => entry(index)));
    storage.compact(1);
    const size = entryBytes(entry(1));
    expect(storage.newestWithin(2, 5, 2 * size)).toBe(4);
    expect(storage.newestWithin(2, 5, 2 * size - 1)).toBe(5);
    expect(storage.newestWithin(2, 5, 0)).toBe(6);
    expect(storage.newestWithin(3, 5, 100 * size)).toBe(3);
    expect(storage.newestWithin(2, 4, size)).toBe(4);
  });

  it("are replaced only by a newer snapshot", () => {
    const storage = new MemoryStorage();
    storage.append([entry(1), entry(2)]);
    const snapshot = { index: 5, term: 2, confState: EMPTY_CONF_STATE, data: new Uint8Array(0) };
    expect(storage.applySnapshot(snapshot)).toBe(true);
    expect(storage.applySnapshot(snapshot)).toBe(false);
    expect([storage.firstIndex(), storage.lastIndex(), storage.term(5)]).toEqual([6, 5, 2]);
    expect(storage.createSnapshot(5, EMPTY_CONF_STATE, new Uint8Array(0))).toBe(false);
  });
});
