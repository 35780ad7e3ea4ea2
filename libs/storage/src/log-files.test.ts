// holds: logs-exact

import { constants, linkSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { blockingLogFiles, pooledLogFiles, type TaskLogFiles } from "./log-files.ts";
import { TaskLog } from "./task-log.ts";

const { O_CREAT, O_RDONLY, O_RDWR } = constants;

let folder: string;
let files: TaskLogFiles;
let nowMs: number;
/** How far each reading of the clock moves it on. */
let stepMs: number;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-log-files-"));
  nowMs = 0;
  stepMs = 0;
  files = blockingLogFiles(() => (nowMs += stepMs));
});

afterEach(() => {
  rmSync(folder, { recursive: true });
});

test("blocking files: a log written with them is the same to all readers", async () => {
  const path = join(folder, "jobs", "stdout");
  await files.makeFolder(join(folder, "jobs"));
  expect(await files.exists(path)).toBe(false);
  const times = [{ at: 0, unixMs: 5 }];
  const piece = (offset: number, text: string, first = 0) => {
    return { offset, data: Buffer.from(text), times, complete: text === "end", first };
  };
  let log = await TaskLog.open(path, undefined, files);
  await log.append(piece(0, "one"));
  await log.sync();
  await log.close();
  log = await TaskLog.open(path, undefined, files);
  await log.append(piece(1, "newer"));
  await log.append(piece(10, "after a gap", 10));
  await log.fill(piece(6, "gap!"));
  await log.append(piece(21, "end"));
  await log.sync();
  await log.close();
  for (const each of [files, pooledLogFiles]) {
    const read = await TaskLog.open(path, undefined, each);
    expect((await read.read(0, 100)).data.toString()).toBe("onewergap!after a gapend");
    expect(read.complete).toBe(true);
    await read.close();
  }
});

test("blocking files: no link is followed, and no folder opened as a log", async () => {
  const path = join(folder, "real");
  writeFileSync(path, "");
  symlinkSync(path, join(folder, "link"));
  linkSync(path, join(folder, "twin"));
  await expect(files.open(folder, "link", O_RDONLY)).rejects.toMatchObject({ code: "ELOOP" });
  await expect(files.open(folder, ".", O_RDONLY)).rejects.toMatchObject({ code: "invalid_value" });
  const own = await files.open(folder, "twin", O_RDONLY);
  expect(await own.stat()).toMatchObject({ size: 0 });
  await own.close();
});

test("blocking files: syncs of a slow disk use the pool for a second", async () => {
  const log = await files.open(folder, "log", O_RDWR | O_CREAT);
  const isInPlace = async () => {
    let isDone = false;
    const synced = log.datasync().then(() => {
      isDone = true;
    });
    for (let turn = 0; turn < 5; turn++) await undefined;
    const wasInPlace = isDone;
    await synced;
    return wasInPlace;
  };
  expect(await isInPlace()).toBe(true);
  stepMs = 30;
  expect(await isInPlace()).toBe(true);
  stepMs = 0;
  expect(await isInPlace()).toBe(false);
  nowMs += 1_001;
  expect(await isInPlace()).toBe(true);
  await log.close();
});
