import { appendFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TaskLog } from "./task-log.ts";

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

test("what a task writes is followed with its times, and found again after a restart", async () => {
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

test("what is seen when it counts no more is not taken, nor what follows the end", async () => {
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

test("shipped pieces may overlap and repeat; one that would leave a gap is not taken", async () => {
  const piece = (offset: number, text: string, first = 0) => ({
    ...{ offset, data: Buffer.from(text), times: [{ at: 0, unixMs: offset }] },
    ...{ complete: false, first },
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

test("bytes that were given back are gone in front, and the offsets behind them stay", async () => {
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

test("a torn or foreign end of the index is cut off", async () => {
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
