import { seededRandom } from "@heddle/base/random";
import { eventually } from "@heddle/base/testing/eventually";
import { FailingFiles } from "@heddle/simulation/failing-files";
import { plainDisk } from "@heddle/simulation/plain-disk";
import { describe, expect, it } from "vitest";
import { SnapshotStore } from "./snapshot-store.ts";
import type { StorageFiles } from "./storage-files.ts";
import { decodeWalRecord, WAL_KINDS, type WalRecord } from "./wal-record.ts";
import { WriteAheadLog } from "./write-ahead-log.ts";

const OWNER = { cluster: "c1", node: "n1" };

const openLog = (files: StorageFiles) =>
  WriteAheadLog.open({ files, directory: "wal", owner: OWNER, segmentBytes: 1024 });

const NO_BYTES = Buffer.alloc(0);
const entry = (index: number): WalRecord => {
  return { kind: WAL_KINDS.entry, term: 1, index, payload: Buffer.alloc(90, index) };
};
const state = (index: number): WalRecord => {
  return { kind: WAL_KINDS.state, term: 1, index, payload: Buffer.alloc(8, 1) };
};
const mark = (index: number): WalRecord => {
  return { kind: WAL_KINDS.snapshot, term: 1, index, payload: NO_BYTES };
};

interface Acknowledged {
  entries: number;
  snapshots: number;
}

/** Writes until an operation fails; returns what was acknowledged by then. */
async function useStorage(files: StorageFiles): Promise<Acknowledged> {
  const done = { entries: 0, snapshots: 0 };
  try {
    await writeAll(files, done);
  } catch (error) {
    expect(String(error)).toMatch(/it fails/);
  }
  return done;
}

async function writeAll(files: StorageFiles, done: Acknowledged): Promise<void> {
  const store = await SnapshotStore.open(files, "snapshots");
  const { log } = await openLog(files);
  try {
    for (let index = 1; index <= 30; index++) {
      await log.append([state(index - 1), entry(index)]);
      done.entries = index;
      if (index % 10 !== 0) continue;
      const id = { index, term: 1 };
      await store.write({ ...id, cluster: "c1", detail: {} }, [Buffer.alloc(100, index)]);
      await log.append([mark(index)]);
      done.snapshots = index;
      await store.prune(id);
      await log.release(index - 10);
    }
  } finally {
    await log.close();
  }
}

describe("storage whose disk fails", () => {
  // holds: wal-io-errors
  it.each(["ENOSPC", "EIO"])(
    "has all that it acknowledged, and no file open, after %s at any operation",
    async (code) => {
      const whole = new FailingFiles(plainDisk(1), -1, code);
      expect(await useStorage(whole)).toEqual({ entries: 30, snapshots: 30 });
      expect(whole.operations).toBeGreaterThan(100);
      for (let at = 0; at < whole.operations; at++) {
        const disk = plainDisk(at);
        const files = new FailingFiles(disk, at, code);
        const acknowledged = await useStorage(files);
        expect(files.stillOpen.size, `files open after operation ${at}`).toBe(0);
        disk.crash();
        const { log, recovered } = await openLog(disk);
        const last = recovered.entries.at(-1)?.index ?? recovered.snapshot?.index ?? 0;
        expect(last, `operation ${at}`).toBeGreaterThanOrEqual(acknowledged.entries);
        const newest = recovered.snapshot?.index ?? 0;
        expect(newest, `operation ${at}`).toBeGreaterThanOrEqual(acknowledged.snapshots);
        if (newest > 0) await expectSnapshot(disk, newest);
        await log.append([entry(last + 1)]);
        await log.close();
      }
    },
  );
});

async function expectSnapshot(files: StorageFiles, index: number): Promise<void> {
  const store = await SnapshotStore.open(files, "snapshots");
  const parts: Uint8Array[] = [];
  for await (const chunk of store.chunks({ index, term: 1 })) parts.push(chunk);
  expect(Buffer.concat(parts)).toEqual(Buffer.alloc(100, index));
}

describe("a log whose process was killed", () => {
  // holds: wal-kill
  it("keeps in a power cut what its next start found in the page cache", async () => {
    const held: (() => void)[] = [];
    let holds = false;
    const disk = plainDisk(3, (run) => (holds ? held.push(run) : queueMicrotask(run)));
    const { log } = await openLog(disk.mount());
    await log.append([state(0), entry(1)]);
    holds = true;
    void log.append([entry(2)]);
    await eventually(() => held.length === 1);
    expect(disk.kill()).toHaveLength(1);
    holds = false;
    for (const outage of [() => undefined, () => disk.crash("all")]) {
      outage();
      const { recovered } = await openLog(disk.mount());
      expect(recovered.entries.map(({ index }) => index)).toEqual([1, 2]);
    }
  });
});

describe("a log with bit rot", () => {
  // holds: wal-bit-flip
  it("is refused for a flipped bit in any record but those of the last group", async () => {
    const disk = plainDisk(1);
    const { log } = await openLog(disk);
    // Alternately one entry, and two in one record.
    for (let index = 1; index <= 12; index += 3) {
      await log.append([state(index - 1), entry(index)]);
      await log.append([state(index), entry(index + 1), entry(index + 2)]);
      if (index === 4) await log.append([mark(index + 2)]);
    }
    await log.close();
    const random = seededRandom(1);
    let flips = 0;
    const paths = (await disk.list("wal")).filter((name) => name.endsWith(".log"));
    expect(paths.length).toBeGreaterThan(2);
    for (const name of paths) {
      const path = `wal/${name}`;
      for (const byte of coveredBytes(disk.content(path), name === paths.at(-1))) {
        const bit = Math.floor(random() * 8);
        disk.flipBit(path, byte, bit);
        await expect(openLog(disk), `byte ${byte} of ${name}`).rejects.toThrow(/corrupt/);
        disk.flipBit(path, byte, bit);
        flips++;
      }
    }
    expect(flips).toBeGreaterThan(1500);
    const again = await openLog(disk);
    expect(again.recovered.entries).toHaveLength(12);
  });
});

/** The positions of all record bytes without padding, and without the last group on request. */
function coveredBytes(bytes: Buffer, leaveLastGroup: boolean): number[] {
  const records: { offset: number; group: number; length: number }[] = [];
  for (let offset = 0; ; ) {
    const record = decodeWalRecord(bytes, offset);
    if (!record) break;
    records.push({ offset, group: record.group, length: 32 + record.payload.byteLength });
    offset += record.stride;
  }
  const lastGroup = leaveLastGroup ? records.at(-1)?.group : undefined;
  return records
    .filter(({ group }) => group !== lastGroup)
    .flatMap(({ offset, length }) => Array.from({ length }, (_, i) => offset + i));
}
