// holds: consensus-snapshot-bytes, wal-power-cut, wal-kill

import { createMessage } from "@heddle/raft/core/message";
import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import { expect, test } from "vitest";
import { MemoryFiles } from "../testing/memory-files.ts";
import { DurableLog } from "./durable-log.ts";

const confState = { ...EMPTY_CONF_STATE, voters: [1] };
const membership = { confState, members: [], lastId: 1 };

function open(files: MemoryFiles, change: object = {}): Promise<DurableLog> {
  return DurableLog.open({
    files,
    directory: "data",
    owner: { cluster: "c", node: "1" },
    segmentBytes: 4096,
    restore: async () => undefined,
    onDamaged: (error) => {
      throw error;
    },
    ...change,
  });
}

const append = (init: object) => createMessage({ type: "MsgStorageAppend", to: 1, ...init });

test("durable log: an own snapshot never replaces a newer one from the leader", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  const entries = [2, 3, 4].map((index) => {
    return { term: 1, index, type: "EntryNormal" as const, data: new Uint8Array(1) };
  });
  await log.write(append({ term: 1, vote: 1, commit: 4, entries }));
  const meta = { index: 9, term: 2, cluster: "c", detail: membership };
  await log.snapshots.write(meta, []);
  const snapshot = { index: 9, term: 2, confState, data: new Uint8Array(0) };
  files.hold();
  const taken = log.write(append({ term: 2, vote: 0, commit: 9, snapshot }));
  const compacted = log.compact({ index: 3, term: 1 }, membership, []);
  await new Promise((resolve) => setImmediate(resolve));
  files.release();
  await Promise.all([taken, compacted]);
  await log.close();
  files.crash();
  const again = await open(files);
  expect(again.snapshotIndex).toBe(9);
  expect(again.memory.lastIndex()).toBe(9);
});

/** An entry of 500 bytes. */
const entry = (index: number, term = 1) => {
  return { term, index, type: "EntryNormal" as const, data: new Uint8Array(500) };
};

test("durable log: what a start found after kill -9 survives a power cut", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  files.hold();
  // The write reaches the page cache, and is never confirmed as durable.
  void log.write(append({ term: 1, vote: 1, commit: 1, entries: [entry(2)] }));
  await new Promise((resolve) => setImmediate(resolve));
  files.kill();
  files.release();
  const second = await open(files);
  expect(second.memory.lastIndex()).toBe(2);
  files.crash("all");
  expect((await open(files)).memory.lastIndex()).toBe(2);
});

test("durable log: the entries after the older snapshot are kept", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  for (let index = 2; index <= 60; index++) {
    await log.write(append({ term: 1, vote: 1, commit: index - 1, entries: [entry(index)] }));
    if (index % 20 === 0) await log.compact({ index, term: 1 }, membership, []);
  }
  await log.close();
  const snapshots = files.paths().filter((path) => path.endsWith(".snap"));
  expect(snapshots.length).toBe(2);
  files.flipBit(snapshots[1] as string, 20, 0);
  const damaged: string[] = [];
  const again = await open(files, {
    onDamaged: ({ message }: Error) => damaged.push(message),
  });
  expect(damaged.length).toBe(1);
  expect([again.snapshotIndex, again.memory.lastIndex()]).toEqual([40, 60]);
});

test("durable log: flush makes a commit index durable that waited for a write", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  await log.write(append({ term: 1, vote: 1, commit: 1, entries: [entry(2)] }));
  await log.write(append({ term: 1, vote: 1, commit: 2 }));
  await log.flush();
  files.crash("all");
  expect((await open(files)).memory.initialState().hardState.commit).toBe(2);
});

// holds: wal-segments
test("durable log: a missing first segment is refused, with the remedy", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  for (let index = 2; index <= 40; index++) {
    const data = new Uint8Array(500);
    const entries = [{ term: 1, index, type: "EntryNormal" as const, data }];
    await log.write(append({ term: 1, vote: 1, commit: index - 1, entries }));
  }
  await log.close();
  const [first, second] = files.paths().filter((path) => path.endsWith(".log"));
  expect(second).toBeDefined();
  await files.remove(first as string);
  await expect(open(files)).rejects.toMatchObject({
    code: "server_error",
    message: expect.stringMatching(
      /^the log in data\/wal begins with entry \d+, but the snapshot before it ends at entry 1: .*empty the directory and start again/,
    ),
  });
});

test("durable log: a snapshot keeps trailing entries for others, within both bounds", async () => {
  const alone = { ...EMPTY_CONF_STATE, voters: [1] };
  const both = { ...EMPTY_CONF_STATE, voters: [1], learners: [2] };
  const cases = [
    [{ trailingEntries: 3 }, both, 7],
    [{ trailingBytes: 1_600 }, both, 7],
    [{ trailingEntries: 3 }, alone, 10],
  ] as const;
  for (const [change, confState, first] of cases) {
    const membership = { confState, members: [], lastId: 1 };
    const files = new MemoryFiles();
    const log = await open(files, change);
    await log.bootstrap(membership, []);
    for (let index = 2; index <= 10; index++) {
      const data = new Uint8Array(500);
      const entries = [{ term: 1, index, type: "EntryNormal" as const, data }];
      await log.write(append({ term: 1, vote: 1, commit: index, entries }));
    }
    await log.compact({ index: 9, term: 1 }, membership, []);
    expect([log.memory.firstIndex(), log.memory.lastIndex()]).toEqual([first, 10]);
    await log.close();
    const again = await open(files, change);
    expect(again.memory.firstIndex()).toBe(first);
    await again.close();
  }
});

test("durable log: term and vote are there after a power cut, each by itself", async () => {
  const files = new MemoryFiles();
  let log = await open(files);
  await log.bootstrap(membership, []);
  for (const state of [
    { term: 2, vote: 0, commit: 1 },
    { term: 2, vote: 3, commit: 1 },
    { term: 5, vote: 3, commit: 1 },
  ]) {
    await log.write(append(state));
    files.crash("all");
    log = await open(files);
    expect(log.memory.initialState().hardState).toEqual(state);
  }
});

test("durable log: a commit index goes with the next write, and with none of its own", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  await log.write(append({ term: 1, vote: 1, commit: 1, entries: [entry(2)] }));
  await log.write(append({ term: 1, vote: 1, commit: 2 }));
  expect(log.memory.initialState().hardState.commit).toBe(1);
  await log.write(append({ entries: [entry(3)] }));
  files.crash("all");
  expect((await open(files)).memory.initialState().hardState).toEqual({
    term: 1,
    vote: 1,
    commit: 2,
  });
});

test("durable log: one without entries is empty, one with a term is not", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  expect(log.isEmpty).toBe(true);
  await log.write(append({ term: 1, vote: 0, commit: 0 }));
  expect(log.isEmpty).toBe(false);
});

/** An entry of which a segment holds one. */
const large = (index: number) => ({ ...entry(index), data: new Uint8Array(2_500) });

/** A log of entries up to 6 that fill a segment each, with snapshots at 3 and 5. */
async function oneEntryPerSegment(): Promise<MemoryFiles> {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  for (let index = 2; index <= 6; index++) {
    await log.write(append({ term: 1, vote: 1, commit: index - 1, entries: [large(index)] }));
    if (index === 3 || index === 5) await log.compact({ index, term: 1 }, membership, []);
  }
  await log.close();
  return files;
}

test("durable log: no older snapshot serves where there is no entry after it", async () => {
  const files = new MemoryFiles();
  const log = await open(files);
  await log.bootstrap(membership, []);
  const id = { index: 2, term: 1 };
  await log.snapshots.write({ ...id, cluster: "c", detail: membership }, []);
  const snapshot = { ...id, confState, data: new Uint8Array(0) };
  await log.write(append({ term: 1, vote: 0, commit: 2, snapshot }));
  await log.close();
  const newest = files.paths().findLast((path) => path.endsWith(".snap")) as string;
  files.flipBit(newest, 20, 0);
  const onDamaged = () => undefined;
  await expect(open(files, { onDamaged })).rejects.toThrow(/no usable snapshot is left/);
});

/** Removes that many of the oldest segments. */
async function loseSegments(files: MemoryFiles, count: number): Promise<void> {
  const segments = files.paths().filter((path) => path.endsWith(".log"));
  for (const path of segments.slice(0, count)) await files.remove(path);
}

// holds: wal-segments
test("durable log: one missing entry after the newest snapshot is refused", async () => {
  const files = await oneEntryPerSegment();
  const again = await open(files);
  expect([again.snapshotIndex, again.memory.lastIndex()]).toEqual([5, 6]);
  await again.write(append({ term: 1, vote: 1, commit: 6, entries: [large(7)] }));
  await again.close();
  const entries = () => files.paths().filter((path) => path.endsWith(".log")).length;
  // Only the segment with entry 7 is left.
  await loseSegments(files, entries() - 1);
  await expect(open(files)).rejects.toThrow(/begins with entry 7, .* ends at entry 5/);
});

test("durable log: an older snapshot does not serve where one entry after it is gone", async () => {
  const files = await oneEntryPerSegment();
  const newest = files.paths().findLast((path) => path.endsWith(".snap")) as string;
  files.flipBit(newest, 20, 0);
  const onDamaged = () => undefined;
  expect((await open(files, { onDamaged })).snapshotIndex).toBe(3);
  const others = await oneEntryPerSegment();
  others.flipBit(newest, 20, 0);
  // The segment with entry 4.
  await loseSegments(others, 1);
  await expect(open(others, { onDamaged })).rejects.toThrow(/no usable snapshot is left/);
});
