// holds: logs-store

import { mkdtempSync, readdirSync, rmSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pooledLogFiles, type TaskLogFiles } from "@heddle/storage/log-files";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { LogName } from "./log-name.ts";
import { LogStore } from "./log-store.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";
import { ThreadedLogStore } from "./log-thread/threaded-log-store.ts";

const MEBIBYTE = 2 ** 20;
const HOUR_MS = 3_600_000;

let folder: string;
let store: LogStorePort;
let logged: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-log-store-"));
  logged = [];
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

function nameOf(jobId: string): LogName {
  return { jobId, attempt: 1, rank: 0, stream: "stdout" };
}

async function put(jobId: string, bytes: number, offset = 0): Promise<void> {
  const data = Buffer.alloc(bytes, jobId);
  await store.append(nameOf(jobId), { offset, data, times: [], complete: false, first: 0 });
}

/** Sets the time of the last write to the job's logs. */
function age(jobId: string, nowMs: number, ms: number): void {
  for (const file of readdirSync(join(folder, jobId))) {
    const at = (nowMs - ms) / 1_000;
    utimesSync(join(folder, jobId, file), at, at);
  }
}

function open(Store: typeof LogStore | typeof ThreadedLogStore): LogStorePort {
  const note = (_: object, message: string) => void logged.push(message);
  return new Store({
    directory: folder,
    log: { info: note, warn: note, error: note },
    syncPauseMs: 0,
    maxBytes: 2.5 * MEBIBYTE,
    maxAgeMs: 24 * HOUR_MS,
  });
}

describe.each([
  { where: "in this thread", Store: LogStore },
  { where: "in a thread of its own", Store: ThreadedLogStore },
])("$where", ({ Store }) => {
  beforeEach(() => {
    store = open(Store);
  });

  test("close: a log that is asked for later is not opened again", async () => {
    await put("job_A", 10);
    await store.close();
    await expect(put("job_A", 10, 10)).rejects.toMatchObject({ code: "unavailable" });
    await expect(store.read(nameOf("job_A"), 0, 10)).rejects.toMatchObject({ code: "unavailable" });
  });

  test("retention: above the byte bound the least recently written jobs are removed", async () => {
    const nowMs = Date.now();
    for (const [at, jobId] of ["job_C", "job_A", "job_B"].entries()) {
      await put(jobId, MEBIBYTE);
      age(jobId, nowMs, (3 - at) * HOUR_MS);
    }
    await store.sweep(nowMs);
    expect(readdirSync(folder).sort()).toEqual(["job_A", "job_B"]);
    await store.sweep(nowMs);
    expect(readdirSync(folder)).toHaveLength(2);
    expect((await store.state(nameOf("job_B"))).end).toBe(MEBIBYTE);
    expect(await store.read(nameOf("job_C"), 0, 10)).toBeUndefined();
  });

  test("retention: logs above the age are removed, whatever their size", async () => {
    const nowMs = Date.now();
    await put("job_A", 10);
    await put("job_B", 10);
    age("job_A", nowMs, 24 * HOUR_MS + 1_000);
    await store.sweep(nowMs);
    expect(readdirSync(folder)).toEqual(["job_B"]);
    expect(logged).toEqual(["the logs of a job are removed for their age or size"]);
  });

  test("retention: a log removed during writes and reads restarts without errors", async () => {
    const nowMs = Date.now();
    await put("job_A", 2 * MEBIBYTE);
    age("job_A", nowMs, HOUR_MS);
    await put("job_B", MEBIBYTE);
    const reading = Array.from({ length: 50 }, (_, at) =>
      store.read(nameOf("job_A"), at, MEBIBYTE),
    );
    const [, ...pieces] = await Promise.all([store.sweep(nowMs), ...reading]);
    // Each reader gets the old data or nothing; none fails.
    for (const piece of pieces)
      if (piece) expect(piece.data.toString()).toMatch(/^(job_A|o|b|_|A)/);
    expect(await store.state(nameOf("job_A"))).toEqual({ end: 0, first: 0, complete: false });
    // Its worker asks for this master's offset, and ships from there.
    await put("job_A", 100);
    expect((await store.read(nameOf("job_A"), 0, 1_000))?.data.byteLength).toBe(100);
  });

  test("store: more logs than open files are written and read", async () => {
    const jobs = Array.from({ length: 300 }, (_, at) => `job_${at}`);
    await Promise.all(jobs.map((jobId) => put(jobId, 10)));
    for (const jobId of jobs) {
      expect((await store.read(nameOf(jobId), 0, 100))?.data.byteLength, jobId).toBe(10);
    }
  });

  test("store: listeners are notified of new bytes alone", async () => {
    const grown: string[] = [];
    const forget = store.onGrown(({ jobId }) => grown.push(jobId));
    await put("job_A", 10);
    await put("job_A", 10);
    expect(grown).toEqual(["job_A"]);
    const piece = await store.read(nameOf("job_A"), 5, 3);
    expect(piece?.data).toEqual(Buffer.alloc(10, "job_A").subarray(5, 8));
    forget();
    await put("job_A", 10, 10);
    expect(grown).toHaveLength(1);
  });

  test("store: what was acknowledged is there for the next process", async () => {
    await put("job_A", 10);
    const name = { ...nameOf("job_A"), stream: "stderr" } as const;
    const times = [{ at: 0, unixMs: 7 }];
    const data = Buffer.from("abc");
    await store.append(name, { offset: 0, data, times, complete: true, first: 0 });
    await store.close();
    store = open(Store);
    expect(await store.state(name)).toEqual({ end: 3, first: 0, complete: true });
    expect(await store.read(name, 0, 9)).toEqual({ offset: 0, data, times, complete: true });
    expect((await store.list("job_A")).map(({ stream }) => stream).sort()).toEqual([
      "stderr",
      "stdout",
    ]);
    expect(await store.offsetAt(name, 8)).toBe(3);
  });
});

/** The pool's files, and the paths below the folder of those that were synced. */
function countingFiles(): { readonly files: TaskLogFiles; readonly synced: Set<string> } {
  const synced = new Set<string>();
  const open: TaskLogFiles["open"] = async (root, path, flags) => {
    const file = await pooledLogFiles.open(root, path, flags);
    const datasync = file.datasync.bind(file);
    return Object.assign(file, {
      datasync: async () => {
        await datasync();
        synced.add(join(root, path));
      },
    });
  };
  return { files: { ...pooledLogFiles, open }, synced };
}

test("store: no log is closed between its piece and its sync", async () => {
  const { files, synced } = countingFiles();
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const bounds = { maxBytes: 2.5 * MEBIBYTE, maxAgeMs: 24 * HOUR_MS };
  store = new LogStore({ directory: folder, log, syncPauseMs: 0, ...bounds, files });
  const unsynced: string[] = [];
  const jobs = Array.from({ length: 600 }, (_, at) => `job_${at}`);
  const puts = jobs.map(async (jobId, at) => {
    // Half of them come while the others are synced, and have the oldest closed.
    while (at >= 300 && synced.size < (at - 300) / 4) await new Promise(setImmediate);
    await put(jobId, 10);
    const ofJob = [...synced].filter((path) => path.startsWith(`${join(folder, jobId)}/`));
    if (ofJob.length < 2) unsynced.push(jobId);
  });
  await Promise.all(puts);
  expect(unsynced).toEqual([]);
});
