import { expect, test } from "vitest";
import { EMPTY_CONF_STATE } from "../core/state.ts";
import { type Entry, entryBytes } from "./entry.ts";
import { MemoryStorage } from "./memory-storage.ts";
import { RaftLog } from "./raft-log.ts";

const entry = (index: number): Entry => ({
  term: 1,
  index,
  type: "EntryNormal",
  data: new Uint8Array(10),
});
const SIZE = entryBytes(entry(2));

/** A log of durable entries 2 to 7 with room to apply two of them, committed up to an index. */
function logOf(committed: number): RaftLog {
  const storage = new MemoryStorage();
  storage.applySnapshot({ index: 1, term: 1, confState: EMPTY_CONF_STATE, data: new Uint8Array() });
  storage.append([2, 3, 4, 5, 6, 7].map(entry));
  const log = new RaftLog(storage, 2 * SIZE, undefined);
  log.commitTo(committed);
  return log;
}

const next = (log: RaftLog) => log.nextCommittedEntries(false).map(({ index }) => index);

test("applying: a full limit hands nothing more over until entries are applied", () => {
  const log = logOf(3);
  expect(next(log)).toEqual([2, 3]);
  log.acceptApplying(3, 2 * SIZE, false);
  log.commitTo(5);
  expect([log.hasNextCommittedEntries(false), next(log)]).toEqual([false, []]);
  log.appliedTo(3, 2 * SIZE);
  expect(next(log)).toEqual([4, 5]);
});

test("applying: what is still being applied counts against the limit", () => {
  const log = logOf(7);
  log.acceptApplying(3, 2 * SIZE, false);
  expect(log.hasNextCommittedEntries(false)).toBe(false);
  log.appliedTo(2, SIZE);
  expect([log.applied, log.applying, next(log)]).toEqual([2, 3, [4]]);
});

test("applying: bytes that were never handed over leave no room beyond the limit", () => {
  const log = logOf(7);
  log.appliedTo(3, 5 * SIZE);
  expect([log.applying, next(log)]).toEqual([3, [4, 5]]);
});

test("reading: entries that are not durable yet follow stored ones within the limit", () => {
  const log = logOf(7);
  log.append([entry(8), entry(9)]);
  const indexes = (maxBytes: number) => {
    const read = log.slice(6, 10, maxBytes);
    return typeof read === "string" ? read : read.map(({ index }) => index);
  };
  expect(indexes(0)).toEqual([6]);
  expect(indexes(2 * SIZE)).toEqual([6, 7]);
  expect(indexes(3 * SIZE - 1)).toEqual([6, 7]);
  expect(indexes(3 * SIZE)).toEqual([6, 7, 8]);
  expect(indexes(9 * SIZE)).toEqual([6, 7, 8, 9]);
});
