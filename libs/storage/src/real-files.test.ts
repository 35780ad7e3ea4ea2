import { closeSync, fstatSync, openSync, writeSync } from "node:fs";
import { mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SnapshotStore } from "./snapshot-store.ts";
import { dedicatedStorageFiles, nodeStorageFiles } from "./storage-files.ts";
import { TaskLog } from "./task-log.ts";

// Only a power cut shows what reached the disk, so the test records the calls.

let directory: string;
/** The synced files of this test, and how: `sync directory`, `datasync file`. */
let synced: string[];
let written: number;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-files-"));
  const probe = await open(directory, "r");
  const handles = Object.getPrototypeOf(probe);
  await probe.close();
  synced = [];
  written = 0;
  for (const call of ["sync", "datasync"] as const) {
    const real = handles[call];
    vi.spyOn(handles, call).mockImplementation(async function (this: { fd: number }) {
      synced.push(`${call} ${fstatSync(this.fd).isDirectory() ? "directory" : "file"}`);
      await real.call(this);
    });
  }
  const write = handles.write;
  vi.spyOn(handles, "write").mockImplementation(function (this: object, ...all: unknown[]) {
    written++;
    return write.apply(this, all);
  });
});

afterEach(async () => {
  vi.restoreAllMocks();
  await rm(directory, { recursive: true });
});

test("files: names are durable after the sync of their directory", async () => {
  await nodeStorageFiles.syncDirectory(directory);
  expect(synced.splice(0)).toEqual(["sync directory"]);
  const file = await nodeStorageFiles.open(join(directory, "a"), "buffered");
  await file.sync();
  await file.close();
  expect(synced).toEqual(["sync file"]);
});

test("files: removing a missing file succeeds, reading it does not", async () => {
  await nodeStorageFiles.remove(join(directory, "none"));
  await expect(nodeStorageFiles.open(join(directory, "none"), "read")).rejects.toThrow(/ENOENT/);
});

test("files: names are listed sorted, and a rename replaces the target", async () => {
  for (const name of ["b", "c", "a"]) await writeFile(join(directory, name), name);
  await nodeStorageFiles.rename(join(directory, "b"), join(directory, "c"));
  expect(await nodeStorageFiles.list(directory)).toEqual(["a", "c"]);
  expect(await readFile(join(directory, "c"), "utf8")).toBe("b");
});

test.each([
  ["the pool", nodeStorageFiles],
  ["a dedicated thread", dedicatedStorageFiles(() => 0)],
])("files: bytes are written and read where they belong, by %s", async (_, files) => {
  const file = await files.open(join(directory, "a"), "durable");
  await file.write(Buffer.from("world"), 6);
  await file.write(Buffer.from("hello "), 0);
  expect(await file.size()).toBe(11);
  expect(Buffer.from(await file.read(5, 3)).toString()).toBe("lo wo");
  expect(Buffer.from(await file.read(99, 9)).toString()).toBe("ld");
  expect(await file.read(5, 50)).toHaveLength(0);
  await file.truncate(4);
  expect(Buffer.from(await file.read(99, 0)).toString()).toBe("hell");
  await file.close();
});

test("files: after a slow write a dedicated thread leaves a second's to the pool", async () => {
  let nowMs = 0;
  let tookMs = 20;
  const times = () => {
    nowMs += tookMs;
    return nowMs;
  };
  const file = await dedicatedStorageFiles(times).open(join(directory, "a"), "durable");
  const writes = async () => {
    written = 0;
    await file.write(Buffer.from("x"), 0);
    return written;
  };
  expect([await writes(), await writes()]).toEqual([0, 0]);
  tookMs = 21;
  expect(await writes()).toBe(0);
  const slowAtMs = nowMs;
  tookMs = 0;
  nowMs = slowAtMs + 999;
  expect(await writes()).toBe(1);
  nowMs = slowAtMs + 1_000;
  expect(await writes()).toBe(0);
  await file.close();
});

test("snapshots: the newest is listed first, and removals are durable", async () => {
  const store = await SnapshotStore.open(nodeStorageFiles, directory);
  const ids = [[5, 1] as const, [5, 2] as const, [4, 3] as const, [3, 9] as const];
  for (const [index, term] of ids) {
    await store.write({ index, term, cluster: "c", detail: {} }, [Buffer.from("x")]);
  }
  const newest = [
    { index: 5, term: 2 },
    { index: 5, term: 1 },
  ];
  expect((await store.list()).slice(0, 2)).toEqual(newest);
  synced = [];
  expect(await store.prune({ index: 5, term: 2 })).toEqual(newest);
  expect(synced.splice(0)).toEqual(["sync directory"]);
  expect(await store.list()).toEqual(newest);
  await store.prune({ index: 5, term: 2 });
  expect(synced).toEqual([]);
});

const piece = (offset: number, text: string, change: object = {}) => {
  const times = [{ at: 0, unixMs: 100 + offset }];
  return { offset, data: Buffer.from(text), times, complete: false, first: 0, ...change };
};

test("task log: appended data and index are durable after sync", async () => {
  const log = await TaskLog.open(join(directory, "out"));
  await log.append(piece(0, "abc"));
  synced = [];
  await log.sync();
  expect(synced).toEqual(["datasync file", "datasync file"]);
  await log.close();
});

test("task log: the end is that of the last complete piece", async () => {
  const log = await TaskLog.open(join(directory, "out"));
  await log.append(piece(5, "f", { complete: true }));
  expect([log.complete, log.end]).toEqual([false, 0]);
  await log.append(piece(0, "abc"));
  await log.append(piece(0, "ab", { complete: true }));
  expect(log.complete).toBe(false);
  await log.append(piece(0, "abc", { complete: true }));
  await log.append(piece(3, "def"));
  expect([log.complete, log.end]).toEqual([true, 3]);
  await log.sync();
  await log.close();
  const again = await TaskLog.open(join(directory, "out"));
  expect([again.complete, again.end]).toEqual([true, 3]);
  await again.close();
});

test("task log: lost bytes are a gap, which a later piece may fill", async () => {
  const log = await TaskLog.open(join(directory, "out"));
  await log.append(piece(0, "ab"));
  await log.append(piece(6, "gh", { first: 6 }));
  expect(log.gaps.map(({ start, end }) => [start, end])).toEqual([[2, 6]]);
  expect((await log.read(0, 99)).data.toString()).toBe("ab");
  expect(await log.read(3, 99)).toMatchObject({ offset: 6, data: Buffer.from("gh") });
  const times = [
    { at: 0, unixMs: 7 },
    { at: 3, unixMs: 8 },
  ];
  await log.fill({ offset: 1, data: Buffer.from("XcdeX"), times, complete: false });
  expect(log.gaps).toEqual([]);
  const { data, times: reported } = await log.read(0, 99);
  expect([data.toString(), reported.map(({ at, unixMs }) => [at, unixMs])]).toEqual([
    "abcdeXgh",
    [
      [0, 100],
      [2, 7],
      [4, 8],
      [6, 106],
    ],
  ]);
  await log.sync();
  await log.close();
  const again = await TaskLog.open(join(directory, "out"));
  expect([again.gaps, again.end]).toEqual([[], 8]);
  await again.close();
});

test("task log: lines keep the times of their arrival and are found by time", async () => {
  const log = await TaskLog.open(join(directory, "out"));
  const times = [
    { at: 0, unixMs: 10 },
    { at: 2, unixMs: 20 },
    { at: 4, unixMs: 30 },
  ];
  await log.append(piece(0, "aabbcc", { times }));
  expect([0, 10, 11, 20, 30, 31].map((unixMs) => log.offsetAt(unixMs))).toEqual([0, 0, 2, 2, 4, 6]);
  expect((await log.read(1, 3)).times).toEqual([
    { at: 0, unixMs: 10 },
    { at: 1, unixMs: 20 },
  ]);
  // Bytes that are already stored keep their times.
  await log.append(piece(3, "bccdd", { times: [{ at: 0, unixMs: 99 }] }));
  expect([log.end, log.offsetAt(31)]).toEqual([8, 6]);
  await log.close();
});

test("task log: text is appended to the file, beside the output of the task", async () => {
  const path = join(directory, "out");
  const log = await TaskLog.open(path);
  const task = openSync(path, "a");
  writeSync(task, "task\n");
  await log.appendText("note\n");
  writeSync(task, "more\n");
  closeSync(task);
  expect([await log.size(), await readFile(path, "utf8")]).toEqual([15, "task\nnote\nmore\n"]);
  await log.close();
});

test("task log: the first bytes of the file are freed, and the rest stays", async ({ skip }) => {
  const path = join(directory, "out");
  await writeFile(path, Buffer.alloc(16_384, 1));
  const log = await TaskLog.open(path);
  try {
    await log.punchHole(8_192);
  } catch (error) {
    skip(`this machine cannot: ${String(error)}`);
  }
  const bytes = await readFile(path);
  expect([bytes.length, bytes[8_191], bytes[8_192]]).toEqual([16_384, 0, 1]);
  await log.close();
});
