// holds: logs-exact

import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TaskLog } from "./task-log.ts";
import { TaskLogIndex } from "./task-log-index.ts";

let folder: string;
let path: string;
let log: TaskLog;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "heddle-task-log-"));
  path = join(folder, "stdout");
  log = await TaskLog.open(path);
});

afterEach(async () => {
  await log.close();
  rmSync(folder, { recursive: true });
});

async function reopen(): Promise<void> {
  await log.close();
  log = await TaskLog.open(path);
}

test("task log: output is indexed with its times, also after a restart", async () => {
  appendFileSync(path, "one\n");
  expect(await log.observe(() => 1_000)).toBe(true);
  expect(await log.observe(() => 1_500)).toBe(false);
  appendFileSync(path, "two\n");
  await log.observe(() => 2_000);
  appendFileSync(path, "unseen");
  await reopen();
  expect(log.end).toBe(8);
  const piece = await log.read(2, 100);
  expect(piece).toMatchObject({ offset: 2, complete: false });
  expect(piece.data.toString()).toBe("e\ntwo\n");
  expect(piece.times).toEqual([
    { at: 0, unixMs: 1_000 },
    { at: 2, unixMs: 2_000 },
  ]);
  expect(log.offsetAt(1_001)).toBe(4);
});

test("task log: a shipped piece has a record for each of its times, and no empty one", async () => {
  const data = Buffer.from("one\ntwo\n");
  const times = [
    { at: 0, unixMs: 1_000 },
    { at: 4, unixMs: 2_000 },
  ];
  await log.append({ offset: 0, data, times, first: 0, complete: false });
  await log.sync();
  expect(statSync(`${path}.index`).size).toBe(64);
  expect((await log.read(0, 100)).times).toEqual(times);
});

test("task log: its index grows in the same file", async () => {
  const inodes = new Set<number>();
  for (const text of ["one\n", "two\n", "three\n"]) {
    appendFileSync(path, text);
    await log.observe(() => 1_000);
    inodes.add(statSync(`${path}.index`).ino);
  }
  expect(inodes.size).toBe(1);
});

test("task log: a stale observation, and bytes after the end, are ignored", async () => {
  appendFileSync(path, "in time\n");
  await log.observe(() => 1_000);
  appendFileSync(path, "too late\n");
  expect(await log.observe(() => undefined)).toBe(false);
  await log.finish();
  expect(await log.observe(() => 2_000)).toBe(false);
  await reopen();
  const { data, complete } = await log.read(0, 100);
  expect([data.toString(), complete]).toEqual(["in time\n", true]);
});

test("task log: shipped pieces may overlap and repeat; a gap is refused", async () => {
  const piece = (offset: number, text: string, first = 0) => ({
    offset,
    data: Buffer.from(text),
    times: [{ at: 0, unixMs: offset }],
    complete: false,
    first,
  });
  await log.append(piece(0, "abc"));
  await log.append(piece(1, "bcde"));
  await log.append(piece(0, "abc"));
  await log.append(piece(7, "never"));
  expect(log.end).toBe(5);
  await log.append(piece(10, "rest", 10));
  await log.sync();
  await reopen();
  expect((await log.read(0, 100)).data.toString()).toBe("abcde");
  const after = await log.read(5, 100);
  expect([after.offset, after.data.toString()]).toEqual([10, "rest"]);
});

test("task log: dropped bytes are missing in front; later offsets stay", async () => {
  for (let i = 0; i < 10; i++) {
    appendFileSync(path, `line ${i}\n`);
    await log.observe(() => i);
  }
  await log.dropBefore(21);
  appendFileSync(path, "last\n");
  await log.observe(() => 99);
  await reopen();
  expect([log.first, log.end]).toEqual([21, 75]);
  const { offset, data } = await log.read(0, 14);
  expect([offset, data.toString()]).toEqual([21, "line 3\nline 4\n"]);
  expect(log.offsetAt(9)).toBe(63);
});

test("task log: a torn or foreign end of the index is truncated", async () => {
  appendFileSync(path, "one\n");
  await log.observe(() => 1);
  await log.close();
  appendFileSync(`${path}.index`, Buffer.alloc(45));
  log = await TaskLog.open(path);
  expect(log.end).toBe(4);
  appendFileSync(path, "two\n");
  await log.observe(() => 2);
  await reopen();
  expect(log.end).toBe(8);
  await log.close();
  truncateSync(`${path}.index`, 40);
  log = await TaskLog.open(path);
  expect(log.end).toBe(4);
  writeFileSync(path, "");
});

test("task log: a record of the index that repeats, or holds no bytes, is truncated", async () => {
  appendFileSync(path, "one\n");
  await log.observe(() => 1);
  await log.close();
  const written = readFileSync(`${path}.index`);
  const empty = Buffer.from(written);
  empty.writeDoubleLE(4, 8);
  empty.writeDoubleLE(4, 16);
  for (const record of [written, empty]) {
    writeFileSync(`${path}.index`, Buffer.concat([written, record]));
    await reopen();
    expect(log.end).toBe(4);
    expect(readFileSync(`${path}.index`)).toEqual(written);
  }
});

test("task log: bytes that are not all lost fill no gap", async () => {
  const index = await TaskLogIndex.open(join(folder, "index"), folder);
  index.add(3, 1);
  index.skip(10);
  index.add(12, 2);
  const before = index.between(0, 12);
  for (const [from, to] of [
    [2, 5],
    [8, 11],
    [0, 2],
    [12, 14],
  ] as const) {
    index.fill(from, to, 9);
    expect(index.between(0, 12)).toEqual(before);
  }
  index.fill(3, 10, 9);
  expect(index.gaps).toEqual([]);
  await index.close();
});

const emptied = /^\[heddle: the program emptied its own output, .* is lost\]$/;

async function lines(from = 0): Promise<string[]> {
  return (await log.read(from, 10_000)).data.toString().split("\n");
}

test("truncated file: a mark replaces the lost bytes and offsets continue after it", async () => {
  appendFileSync(path, "first\ncut");
  await log.observe(() => 1_000);
  writeFileSync(path, "");
  // Until the next `observe` there is nothing to read, which readers see as an empty piece.
  expect(await log.read(2, 100)).toMatchObject({ offset: 2, data: Buffer.alloc(0) });
  appendFileSync(path, "new\n");
  expect(await log.observe(() => 2_000)).toBe(true);
  expect(await log.observe(() => 2_500)).toBe(false);
  expect(log.first).toBe(9);
  expect(await lines()).toEqual(["", expect.stringMatching(emptied), "new", ""]);
  appendFileSync(path, "more\n");
  await log.observe(() => 3_000);
  await reopen();
  expect(log.end).toBe(log.base + 9);
  expect(await lines(2)).toEqual(["", expect.stringMatching(emptied), "new", "more", ""]);
  expect((await log.read(log.base - 2, 5)).data.toString()).toBe("]\nnew");
  expect((await log.read(log.base + 4, 5)).data.toString()).toBe("more\n");
  expect(log.offsetAt(3_000)).toBe(log.base + 4);
  await log.dropBefore(log.base + 4);
  await reopen();
  appendFileSync(path, "last\n");
  await log.observe(() => 4_000);
  expect(await lines()).toEqual(["more", "last", ""]);
});

test("truncated file: one that has outgrown its index is detected by its last bytes", async () => {
  appendFileSync(path, "first\n");
  await log.observe(() => 1_000);
  writeFileSync(path, "longer than the first\n");
  expect((await log.read(0, 100)).data.byteLength).toBe(0);
  await log.observe(() => 2_000);
  expect(await lines()).toEqual([expect.stringMatching(emptied), "longer than the first", ""]);
  const before = log.end;
  writeFileSync(path, "again\n");
  await log.observe(() => 3_000);
  expect(log.first).toBe(before);
  expect(await lines()).toEqual([expect.stringMatching(emptied), "again", ""]);
});

test("truncated file: one that is shorter after a restart is detected", async () => {
  appendFileSync(path, "first\nsecond\n");
  await log.observe(() => 1_000);
  await log.close();
  writeFileSync(path, "new\n");
  log = await TaskLog.open(path);
  await log.observe(() => 2_000);
  expect((await lines()).slice(1)).toEqual([expect.stringMatching(emptied), "new", ""]);
});

test("finished log: bytes that the file lost are a gap, and the log still ends", async () => {
  appendFileSync(path, "first\nsecond\n");
  await log.observe(() => 1_000);
  await log.finish();
  expect(await log.read(0, 0)).toMatchObject({ offset: 0, complete: false });
  truncateSync(path, 6);
  expect(await log.read(8, 100)).toMatchObject({ offset: 13, times: [], complete: true });
  for (const again of [false, true]) {
    if (again) await reopen();
    const ends: unknown[] = [];
    for (let at = 0; ends.length < 5; ) {
      const { offset, data, complete } = await log.read(at, 100);
      ends.push([offset, data.byteLength, complete]);
      at = offset + data.byteLength;
      if (complete) break;
    }
    expect(ends.at(-1)).toEqual([13, 0, true]);
  }
});

test.each([0, 9, Number.NaN])("index: a record of the unknown kind %d ends it", async (kind) => {
  appendFileSync(path, "one\ntwo\n");
  await log.observe(() => 1_000);
  await log.close();
  const record = Buffer.alloc(32);
  for (const [i, value] of [kind, 8, 12, 2_000].entries()) record.writeDoubleLE(value, i * 8);
  appendFileSync(`${path}.index`, record);
  log = await TaskLog.open(path);
  expect(log.end).toBe(8);
});
