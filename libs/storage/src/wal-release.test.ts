import { mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { nodeStorageFiles } from "./storage-files.ts";
import { decodeWalRecord, WAL_KINDS, type WalRecord } from "./wal-record.ts";
import { type WalOptions, WriteAheadLog } from "./write-ahead-log.ts";

// Segments are released oldest first, and each later segment repeats the term, vote and snapshot.

let directory: string;
/** Calls that change names, in order. */
let names: string[];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-release-"));
  names = [];
});
afterEach(() => rm(directory, { recursive: true }));

function open(options: Partial<WalOptions> = {}) {
  const files = {
    ...nodeStorageFiles,
    rename: async (from: string, to: string) => {
      await nodeStorageFiles.rename(from, to);
      names.push("rename");
    },
    syncDirectory: async (path: string) => {
      await nodeStorageFiles.syncDirectory(path);
      names.push("sync");
    },
  };
  const owner = { cluster: "c", node: "n" };
  return WriteAheadLog.open({ files, directory, owner, segmentBytes: 4_096, ...options });
}

const entry = (index: number, term = 1, bytes = 500): WalRecord => {
  return { kind: WAL_KINDS.entry, term, index, payload: Buffer.alloc(bytes, index) };
};
const state = (term: number): WalRecord => {
  return { kind: WAL_KINDS.state, term, index: term, payload: Buffer.alloc(8, term) };
};
const snapshot = (index: number): WalRecord => {
  return { kind: WAL_KINDS.snapshot, term: 1, index, payload: Buffer.alloc(0) };
};

const segments = async () => (await readdir(directory)).filter((name) => name.endsWith(".log"));

async function append(log: WriteAheadLog, from: number, to: number, term = 1): Promise<void> {
  for (let index = from; index <= to; index++) await log.append([entry(index, term)]);
}

/** What a log contains after it was closed and opened again. */
async function reopened(log: WriteAheadLog, options: Partial<WalOptions> = {}) {
  await log.close();
  const { log: again, recovered } = await open(options);
  await again.close();
  return {
    first: recovered.entries[0]?.index,
    last: recovered.entries.at(-1)?.index,
    term: recovered.state?.term,
    snapshot: recovered.snapshot?.index,
  };
}

test("log: term, vote and snapshot outlive their segments, and a restart", async () => {
  const { log } = await open();
  await log.append([state(7), snapshot(1)]);
  await append(log, 2, 10);
  await log.close();
  const { log: next } = await open();
  await append(next, 11, 40);
  await next.release(38);
  expect((await segments()).length).toBeLessThan(4);
  expect(await reopened(next)).toMatchObject({ last: 40, term: 7, snapshot: 1 });
});

test("log: a release is durable with all its names", async () => {
  const { log } = await open();
  await append(log, 1, 40);
  names = [];
  await log.release(1);
  expect(names).toEqual([]);
  await log.release(30);
  expect([names.includes("rename"), names.at(-1)]).toEqual([true, "sync"]);
  const spares = (await readdir(directory)).filter((name) => name.startsWith("wal-spare-"));
  expect(spares).toHaveLength(2);
  await log.close();
});

test("log: a segment stays as long as an earlier one does, whatever its entries", async () => {
  const { log } = await open();
  await append(log, 1, 7);
  // Truncated and rewritten: later segments hold lower entries than the first.
  await append(log, 2, 5, 2);
  await append(log, 3, 4, 3);
  for (let times = 0; times < 3; times++) await append(log, 3, 5, 4 + times);
  const before = await segments();
  await log.release(6);
  expect(await segments()).toEqual(before);
  expect(await reopened(log)).toMatchObject({ first: 1, last: 5 });
});

test("log: segments without entries go with their neighbours, and leave no gap", async () => {
  const { log } = await open();
  await append(log, 1, 8);
  for (let term = 2; term < 400; term++) await log.append([state(term)]);
  await append(log, 9, 30, 400);
  await log.release(25);
  expect((await segments()).length).toBeLessThan(5);
  expect(await reopened(log)).toMatchObject({ last: 30, term: 399 });
});

test("log: a new one takes nothing from an earlier one's files", async () => {
  const { log } = await open();
  await append(log, 1, 40);
  await log.release(30);
  await log.close();
  for (const name of await segments()) await rm(join(directory, name));
  expect((await readdir(directory)).some((name) => name.startsWith("wal-spare-"))).toBe(true);
  const { log: again } = await open();
  await append(again, 1, 2);
  expect(await reopened(again)).toMatchObject({ first: 1, last: 2 });
});

test("log: a spare of another size does not become a segment", async () => {
  const { log } = await open();
  await append(log, 1, 40);
  await log.release(30);
  await log.close();
  const { log: larger } = await open({ segmentBytes: 16_384 });
  await append(larger, 41, 120);
  expect(await reopened(larger, { segmentBytes: 16_384 })).toMatchObject({ last: 120 });
});

test("log: exactly maxPendingBytes may wait for the disk", async () => {
  const { log } = await open({ maxPendingBytes: 1_072 });
  // One that is being written, and two of 536 bytes that wait.
  const appended = Promise.all([1, 2, 3].map((index) => log.append([entry(index)])));
  await expect(log.append([entry(4, 1, 0)])).rejects.toMatchObject({ code: "overloaded" });
  await appended;
  await log.append([entry(4)]);
  await log.close();
});

test("log: a missing segment in the middle is refused", async () => {
  const { log } = await open();
  await append(log, 1, 40);
  await log.close();
  const [, second = ""] = (await segments()).sort();
  await rename(join(directory, second), join(directory, "away"));
  await expect(open()).rejects.toThrow(/segment 1 is missing/);
});

test("log: a torn write is truncated whole, even if its last records are valid", async () => {
  const { log } = await open();
  await log.append([state(1)]);
  await append(log, 1, 1);
  await log.append([state(2), entry(2), snapshot(1)]);
  await log.close();
  const path = join(directory, (await segments())[0] ?? "");
  const bytes = await readFile(path);
  let at = 0;
  for (let record = decodeWalRecord(bytes, 0); record?.term !== 2; ) {
    at += record?.stride ?? bytes.length;
    record = decodeWalRecord(bytes, at);
  }
  bytes.fill(0, at, at + 8);
  await writeFile(path, bytes);
  const { log: again, recovered } = await open();
  expect(recovered.tornBytes).toBeGreaterThan(0);
  expect([recovered.state?.term, recovered.entries.length]).toEqual([1, 1]);
  await append(again, 2, 2, 3);
  expect(await reopened(again)).toMatchObject({ first: 1, last: 2, term: 1 });
});
