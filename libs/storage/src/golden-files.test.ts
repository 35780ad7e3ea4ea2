// holds: wal-golden

import { cp, mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SnapshotStore } from "./snapshot-store.ts";
import { nodeStorageFiles } from "./storage-files.ts";
import {
  decodeWalRecord,
  encodeWalRecord,
  type StoredRecord,
  WAL_KINDS,
  type WalRecord,
} from "./wal-record.ts";
import { WriteAheadLog } from "./write-ahead-log.ts";

/**
 * Files as each format wrote them, which every later version must open. They are never regenerated:
 * a change of a format gets another number and golden files of its own.
 *
 * - v1 is of version 0.1.0.
 * - v2: a segment's header holds the size of its file.
 * - v3: a run of entries is one record.
 */
const golden = (format: string) => fileURLToPath(new URL(`../testdata/${format}`, import.meta.url));
const NEWEST = golden("v3");
const META = { index: 3, term: 2, cluster: "golden", detail: { voters: [1] } };

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-golden-"));
});
afterEach(() => rm(directory, { recursive: true }));

const record = (kind: WalRecord["kind"], term: number, index: number, text = ""): WalRecord => {
  return { kind, term, index, payload: Buffer.from(text) };
};
const { entry, state, snapshot } = WAL_KINDS;
const GROUPS = [
  [record(state, 1, 0, "voter-01"), record(entry, 1, 1, "first"), record(entry, 1, 2, "")],
  [record(state, 2, 2, "voter-02"), record(entry, 2, 2, "replaced"), record(entry, 2, 3, "third")],
  [record(snapshot, 2, 3)],
  [record(entry, 2, 4, "x".repeat(300)), record(entry, 2, 5, "in the second segment")],
];

/** Writes the content of the golden files. */
async function writeAll(to: string): Promise<void> {
  const store = await SnapshotStore.open(nodeStorageFiles, join(to, "snapshots"));
  await store.write(META, [Buffer.from("a state "), Buffer.from("in two pieces")]);
  const { log } = await open(to);
  for (const group of GROUPS) await log.append(group);
  await log.close();
}

function open(root: string) {
  const owner = { cluster: "golden", node: "1" };
  const place = { files: nodeStorageFiles, directory: join(root, "wal") };
  return WriteAheadLog.open({ ...place, owner, segmentBytes: 512 });
}

test.each(["v1", "v2", "v3"])("format %s: the log and the snapshot open", async (format) => {
  await cp(golden(format), directory, { recursive: true });
  const { log, recovered } = await open(directory);
  await log.close();
  expect(recovered.entries.map(({ term, index, payload }) => [term, index, `${payload}`])).toEqual([
    [1, 1, "first"],
    [2, 2, "replaced"],
    [2, 3, "third"],
    [2, 4, "x".repeat(300)],
    [2, 5, "in the second segment"],
  ]);
  expect(recovered.state).toMatchObject({ term: 2, index: 2, payload: Buffer.from("voter-02") });
  expect(recovered.snapshot).toMatchObject({ term: 2, index: 3 });
  const store = await SnapshotStore.open(nodeStorageFiles, join(directory, "snapshots"));
  expect(await store.meta(META)).toEqual(META);
  const parts: Uint8Array[] = [];
  for await (const chunk of store.chunks(META)) parts.push(chunk);
  expect(Buffer.concat(parts).toString()).toBe("a state in two pieces");
});

test("format v3: today's writer produces it to the byte", async () => {
  await writeAll(directory);
  for (const part of ["wal", "snapshots"]) {
    const names = (await readdir(join(NEWEST, part))).sort();
    const written = (await readdir(join(directory, part))).filter((name) => !name.endsWith(".tmp"));
    expect(written.sort()).toEqual(names);
    for (const name of names) {
      const golden = await readFile(join(NEWEST, part, name));
      expect((await readFile(join(directory, part, name))).equals(golden), name).toBe(true);
    }
  }
});

test.each(["v1", "v2"])("format %s: a log is continued in today's format", async (format) => {
  await cp(golden(format), directory, { recursive: true });
  const { log } = await open(directory);
  await log.append([record(entry, 3, 6, "sixth"), record(entry, 3, 7, "seventh")]);
  await log.close();
  const { log: again, recovered } = await open(directory);
  await again.close();
  expect(recovered.entries.map(({ index }) => index)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(`${recovered.entries.at(-1)?.payload}`).toBe("seventh");
});

test("newer format: a log is refused and not truncated", async () => {
  await writeAll(directory);
  const path = join(directory, "wal", "wal-0000000000000000.log");
  const bytes = await readFile(path);
  const head = decodeWalRecord(bytes, 0) as StoredRecord;
  const text = Buffer.from(`${head.payload}`.replace('"format":3', '"format":4'));
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  encodeWalRecord({ bytes, view }, 0, { ...head, payload: text }, head);
  await writeFile(path, bytes);
  await expect(open(directory)).rejects.toThrow(/format 4.*newer version of Heddle/);
});

test("format v1: a truncated file is refused although its headers hold no size", async () => {
  await cp(golden("v1"), directory, { recursive: true });
  await truncate(join(directory, "wal", "wal-0000000000000001.log"), 400);
  await expect(open(directory)).rejects.toThrow(/corrupt in segment 1: its file has 400 bytes/);
});
