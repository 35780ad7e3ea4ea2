import {
  copyFile,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  truncate,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { nodeStorageFiles, type StorageFile, type StorageFiles } from "./storage-files.ts";
import {
  decodeWalRecord,
  encodeWalRecord,
  WAL_KINDS,
  type WalRecord,
  walRecordBytes,
} from "./wal-record.ts";
import { type WalOptions, WriteAheadLog } from "./write-ahead-log.ts";

/** The header's length in format v1, whose golden files must stay readable. */
const WAL_HEADER_BYTES = 32;
const OWNER = { cluster: "c1", node: "n1" };
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-wal-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

function open(options: Partial<WalOptions> = {}) {
  return WriteAheadLog.open({
    files: nodeStorageFiles,
    directory,
    owner: OWNER,
    segmentBytes: 4096,
    ...options,
  });
}

function entry(index: number, term = 1, bytes = 40): WalRecord {
  return { kind: WAL_KINDS.entry, term, index, payload: Buffer.alloc(bytes, index) };
}

function state(term: number, commit: number): WalRecord {
  return { kind: WAL_KINDS.state, term, index: commit, payload: Buffer.from([2]) };
}

async function write(records: readonly WalRecord[][]): Promise<void> {
  const { log } = await open();
  for (const group of records) await log.append(group);
  await log.close();
}

async function read(): Promise<{ indexes: number[]; tornBytes: number; commit: number }> {
  const { log, recovered } = await open();
  await log.close();
  return {
    indexes: recovered.entries.map(({ index }) => index),
    tornBytes: recovered.tornBytes,
    commit: recovered.state?.index ?? -1,
  };
}

async function lastSegment(): Promise<string> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".log")).sort();
  return join(directory, names.at(-1) as string);
}

describe("WriteAheadLog", () => {
  it("drops the log that a snapshot of another node has replaced, and no other", async () => {
    const snapshot = (index: number, term: number): WalRecord => {
      return { kind: WAL_KINDS.snapshot, term, index, payload: Buffer.alloc(0) };
    };
    await write([[entry(1), entry(2), entry(3)], [snapshot(2, 1)]]);
    expect((await read()).indexes).toEqual([1, 2, 3]);
    await write([[snapshot(3, 2)]]);
    expect((await read()).indexes).toEqual([]);
    await write([[entry(4, 2)], [snapshot(9, 2)], [entry(10, 2)]]);
    expect((await read()).indexes).toEqual([10]);
    await write(Array.from({ length: 100 }, (_, i) => [entry(11 + i, 2)]));
    expect((await read()).indexes).toHaveLength(101);
  });

  it("reads back what was appended, over several segments and a second opening", async () => {
    await write(Array.from({ length: 100 }, (_, i) => [entry(i + 1), state(1, i)]));
    expect(
      (await readdir(directory)).filter((name) => name.endsWith(".log")).length,
    ).toBeGreaterThan(2);
    const all = Array.from({ length: 100 }, (_, i) => i + 1);
    expect(await read()).toEqual({ indexes: all, tornBytes: 0, commit: 99 });
    const { log } = await open();
    await log.append([entry(101)]);
    await log.close();
    expect((await read()).indexes).toEqual([...all, 101]);
  });

  it("an entry that is rewritten replaces the old one and all after it", async () => {
    await write([[entry(1), entry(2), entry(3)], [entry(2, 2)]]);
    const { log, recovered } = await open();
    await log.close();
    expect(recovered.entries.map(({ index, term }) => [index, term])).toEqual([
      [1, 1],
      [2, 2],
    ]);
  });

  it("writes records appended during a write as one group", async () => {
    const counted = countingFiles();
    const { log } = await open({ files: counted.files, segmentBytes: 1 << 20 });
    const before = counted.writes();
    await Promise.all(Array.from({ length: 200 }, (_, i) => log.append([entry(i + 1)])));
    expect(counted.writes() - before).toBeLessThanOrEqual(3);
    await log.close();
    expect((await read()).indexes.length).toBe(200);
  });

  it("reads back runs of entries, and entries too long for one record", async () => {
    const { log } = await open({ segmentBytes: 8 << 20 });
    const sizes = [0, 1, 7, 8, 9, 600_000, 500_000, 1_200_000, 3, 4, 5];
    const records = sizes.map((bytes, i): WalRecord => {
      return { ...entry(i + 1, 1, bytes), prefixByte: i % 2 === 0 ? 200 + i : undefined };
    });
    const group = [state(1, 0), ...records.slice(0, 9), state(1, 1), ...records.slice(9)];
    await log.append(group);
    await log.append([entry(12)]);
    await log.close();
    const { log: again, recovered } = await open({ segmentBytes: 8 << 20 });
    await again.close();
    const expected = sizes.map((bytes, i) => {
      const payload = Buffer.alloc(bytes, i + 1);
      return Buffer.concat([i % 2 === 0 ? Buffer.from([200 + i]) : Buffer.alloc(0), payload]);
    });
    const found = recovered.entries.map(({ payload }) => Buffer.from(payload));
    expect(found.length).toBe(12);
    for (const [i, bytes] of expected.entries()) expect(found[i]?.equals(bytes)).toBe(true);
    expect(recovered.state).toMatchObject({ term: 1, index: 1 });
  });

  it("holds a record larger than a segment", async () => {
    await write([[entry(1)], [entry(2, 1, 20_000)], [entry(3)]]);
    expect((await read()).indexes).toEqual([1, 2, 3]);
  });

  // holds: wal-torn
  it("drops only the last group, at any byte where its write was torn", async () => {
    await write([[entry(1)], [entry(2)], [entry(3), entry(4)]]);
    const path = await lastSegment();
    const whole = await readFile(path);
    // Both are in one record, each with 16 bytes before it.
    const groupStart = endOfRecords(whole) - walRecordBytes(2 * (16 + 40));
    for (let at = groupStart + 1; at < endOfRecords(whole); at++) {
      await writeFile(
        path,
        Buffer.concat([whole.subarray(0, at), Buffer.alloc(whole.length - at)]),
      );
      const { indexes } = await read();
      // The group is whole if only zeros are missing.
      const isWhole = whole.subarray(at).every((byte) => byte === 0);
      expect(indexes, `torn at byte ${at}`).toEqual(isWhole ? [1, 2, 3, 4] : [1, 2]);
      if (isWhole) continue;
      // The opening has truncated it: neither its bytes nor its report come again.
      const rest = (await readFile(path)).subarray(groupStart);
      expect(rest.every((byte) => byte === 0)).toBe(true);
      expect((await read()).tornBytes).toBe(0);
    }
  });

  it("continues after a torn write and recovers the new entries", async () => {
    await write([[entry(1)], [entry(2), entry(3)]]);
    const path = await lastSegment();
    const whole = await readFile(path);
    whole.fill(0, endOfRecords(whole) - 20);
    await writeFile(path, whole);
    const { log, recovered } = await open();
    expect(recovered.tornBytes).toBeGreaterThan(0);
    await log.append([entry(2, 2)]);
    await log.append([entry(3, 2)]);
    await log.close();
    expect(await read()).toEqual({ indexes: [1, 2, 3], tornBytes: 0, commit: -1 });
  });

  it("continues in the next segment after a torn write, and keeps later writes", async () => {
    await write([[entry(1)], [entry(2), entry(3)]]);
    const path = await lastSegment();
    const whole = await readFile(path);
    whole.fill(0, endOfRecords(whole) - 20);
    await writeFile(path, whole);
    const { log } = await open();
    await log.append([entry(2, 2, 4000)]);
    await log.append([entry(3, 2)]);
    await log.close();
    expect((await read()).indexes).toEqual([1, 2, 3]);
    expect((await read()).indexes).toEqual([1, 2, 3]);
  });

  it("keeps a segment until the header of the next one is on the disk", async () => {
    const held = heldFiles();
    const { log } = await open({ files: held.files });
    await log.append([state(7, 0), entry(1)]);
    held.hold();
    const rolling = log.append([entry(2, 7, 4000)]);
    await held.reached;
    await log.release(100);
    const names = await readdir(directory);
    expect(names).toContain("wal-0000000000000000.log");
    held.release();
    await rolling;
    await log.release(2);
    expect(await readdir(directory)).not.toContain("wal-0000000000000000.log");
    await log.close();
    expect((await read()).indexes).toEqual([2]);
  });

  it("refuses a flipped bit in any field of a record that was acknowledged", async () => {
    await write([[entry(1)], [entry(2)], [entry(3)], [entry(4)]]);
    const path = await lastSegment();
    const whole = await readFile(path);
    const start = endOfRecords(whole) - 3 * walRecordBytes(40);
    for (let byte = 0; byte < WAL_HEADER_BYTES + 40; byte++) {
      const damaged = Buffer.from(whole);
      damaged[start + byte] = (damaged[start + byte] as number) ^ 4;
      await writeFile(path, damaged);
      await expect(open(), `bit flipped in byte ${byte}`).rejects.toThrow(/corrupt in segment 0/);
    }
  });

  it("refuses a valid record that was not written at its position", async () => {
    await write([[entry(1)], [entry(2)], [entry(3)], [entry(4)]]);
    const path = await lastSegment();
    const bytes = await readFile(path);
    const start = endOfRecords(bytes) - 3 * walRecordBytes(40);
    const stored = decodeWalRecord(bytes, start);
    if (!stored) throw new Error("there is no record");
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    encodeWalRecord({ bytes, view }, start, { ...stored, payload: Buffer.alloc(40, 9) }, stored);
    await writeFile(path, bytes);
    await expect(open()).rejects.toThrow(/corrupt in segment 0/);
  });

  it("refuses a run of entries whose lengths are not whole, and says where", async () => {
    const run = { kind: WAL_KINDS.entries, term: 1, index: 2, payload: Buffer.alloc(24, 255) };
    await write([[entry(1)], [run]]);
    await expect(open()).rejects.toMatchObject({
      code: "server_error",
      message: expect.stringMatching(
        /corrupt in segment 0: entries up to 2 have no whole lengths; .* add it again with an empty/,
      ),
    });
  });

  const segment = (n: number) => join(directory, `wal-${String(n).padStart(16, "0")}.log`);

  it("refuses a segment of another log of the same member", async () => {
    const build = (term: number) =>
      write(Array.from({ length: 150 }, (_, i) => [entry(i + 1, term)]));
    await build(2);
    const foreign = await readFile(segment(1));
    await rm(directory, { recursive: true });
    await build(1);
    await writeFile(segment(1), foreign);
    await expect(open()).rejects.toThrow(/corrupt in segment 0/);
  });

  // holds: wal-segments
  it("refuses a missing, a zeroed and a duplicated segment", async () => {
    const build = () => write(Array.from({ length: 150 }, (_, i) => [entry(i + 1)]));
    const damages = [
      () => rm(segment(1)),
      () => writeFile(segment(1), Buffer.alloc(4096)),
      () => copyFile(segment(0), segment(1)),
    ];
    for (const damage of damages) {
      await rm(directory, { recursive: true });
      await build();
      await damage();
      await expect(open()).rejects.toThrow(/corrupt/);
    }
  });

  // holds: wal-segments
  it("refuses a segment whose file was truncated, to any length", async () => {
    await write(Array.from({ length: 20 }, (_, i) => [entry(i + 1)]));
    const path = await lastSegment();
    const whole = await readFile(path);
    for (let length = 0; length < whole.length; length += 8) {
      await writeFile(path, whole.subarray(0, length));
      await expect(open(), `${length} bytes`).rejects.toThrow(/corrupt in segment 0: its file has/);
      expect((await readFile(path)).byteLength).toBe(length);
    }
    await writeFile(path, whole);
    expect((await read()).indexes).toHaveLength(20);
  });

  it("refuses a last segment that ends within its header", async () => {
    await write(Array.from({ length: 150 }, (_, i) => [entry(i + 1)]));
    await truncate(await lastSegment(), 16);
    await expect(open()).rejects.toThrow(/its file has 16 bytes/);
  });

  it("removes the segment whose first write was torn, and takes its place again", async () => {
    await write([[entry(1, 1, 3000)], [entry(2, 1, 3000)]]);
    const [kept = "", torn = ""] = (await readdir(directory)).sort();
    const whole = await readFile(join(directory, torn));
    await writeFile(join(directory, torn), whole.fill(0, 40));
    const { log, recovered } = await open();
    expect(recovered.entries.map(({ index }) => index)).toEqual([1]);
    expect((await readdir(directory)).filter((name) => name.endsWith(".log"))).toEqual([kept]);
    await log.append([entry(2, 2, 3000)]);
    await log.close();
    expect((await readdir(directory)).sort()).toContain(torn);
    expect((await read()).indexes).toEqual([1, 2]);
  });

  it("refuses the only segment under another's name", async () => {
    await write([[entry(1)], [entry(2)]]);
    const path = await lastSegment();
    await rename(path, path.replace(/0\.log$/, "1.log"));
    await expect(open()).rejects.toThrow(/corrupt/);
  });

  it("begins again in a first segment of zeros, and reads what it then wrote", async () => {
    await write([[entry(1)]]);
    const path = await lastSegment();
    await writeFile(path, Buffer.alloc((await readFile(path)).byteLength));
    await write([[entry(1)], [entry(2)]]);
    expect((await read()).indexes).toEqual([1, 2]);
  });

  it("opens with a smaller or larger segment size than it was written with", async () => {
    await write(Array.from({ length: 20 }, (_, i) => [entry(i + 1)]));
    for (const segmentBytes of [16_384, 1024, 4096]) {
      const { log, recovered } = await open({ segmentBytes });
      const next = recovered.entries.length + 1;
      for (let index = next; index < next + 20; index++) await log.append([entry(index)]);
      await log.close();
    }
    expect((await read()).indexes).toHaveLength(80);
  });

  it("opens a segment that one large group extended, with a larger size too", async () => {
    await write([[entry(1)], [entry(2, 1, 20_001)]]);
    const { log, recovered } = await open({ segmentBytes: 65_536 });
    await log.close();
    expect(recovered.entries).toHaveLength(2);
  });

  // holds: wal-other-cluster
  it("refuses a log in which an entry is missing, and names it", async () => {
    await write([[entry(5), entry(6)], [entry(8)]]);
    await expect(open()).rejects.toThrow(/entry 7 is missing before entry 8/);
  });

  it("reads segments alone, not files whose names contain theirs", async () => {
    await write([[entry(1)]]);
    const [name = ""] = await readdir(directory);
    for (const other of [`x${name}`, `${name}.old`, name.replace(/.\.log/, ".log")]) {
      await writeFile(join(directory, other), "no segment");
    }
    expect(await read()).toMatchObject({ indexes: [1] });
  });

  it("refuses the log of another node or cluster", async () => {
    await write([[entry(1)]]);
    await expect(open({ owner: { cluster: "c1", node: "n2" } })).rejects.toThrow(
      /belongs to node n1 of cluster c1, not to node n2/,
    );
    await expect(open({ owner: { cluster: "c2", node: "n1" } })).rejects.toThrow(
      /belongs to node n1 of cluster c1, not to node n1 of cluster c2/,
    );
  });

  it("removes only segments below a released index, and keeps the state", async () => {
    const { log } = await open();
    await log.append([state(7, 3)]);
    for (let i = 1; i <= 200; i++) await log.append([entry(i)]);
    await log.append([{ kind: WAL_KINDS.snapshot, term: 1, index: 150, payload: Buffer.alloc(0) }]);
    await log.release(150);
    await log.close();
    const { indexes, commit } = await read();
    expect(indexes[0]).toBeGreaterThan(1);
    expect(indexes[0]).toBeLessThanOrEqual(150);
    expect(indexes.at(-1)).toBe(200);
    expect(commit).toBe(3);
  });

  it("rejects every append after a failed write, and never writes again", async () => {
    const counted = countingFiles();
    const { log } = await open({ files: counted.files });
    await log.append([entry(1)]);
    counted.failNext("no space left on device");
    const failing = log.append([entry(2)]);
    const waiting = log.append([entry(3)]);
    await expect(failing).rejects.toThrow(/cannot write: no space left/);
    await expect(waiting).rejects.toThrow(/cannot write/);
    const before = counted.writes();
    await expect(log.append([entry(4)])).rejects.toThrow(/cannot write/);
    expect(counted.writes()).toBe(before);
    await log.close();
    expect((await read()).indexes).toEqual([1]);
  });

  it("refuses more than its bound of waiting bytes", async () => {
    const { log } = await open({ maxPendingBytes: 1000 });
    const appends = Array.from({ length: 50 }, (_, i) => log.append([entry(i + 1)]));
    const results = await Promise.allSettled(appends);
    expect(results.some(({ status }) => status === "rejected")).toBe(true);
    await log.close();
  });
});

function endOfRecords(bytes: Buffer): number {
  let at = bytes.length - 1;
  while (bytes[at] === 0) at--;
  return (at + 8) & ~7;
}

/** The real file system with durable writes that a test can delay. */
function heldFiles() {
  let gate: Promise<void> | undefined;
  let release = () => {};
  let arrive = () => {};
  const reached = new Promise<void>((resolve) => {
    arrive = resolve;
  });
  const files: StorageFiles = {
    ...nodeStorageFiles,
    async open(path, mode) {
      const file = await nodeStorageFiles.open(path, mode);
      const write = file.write.bind(file);
      file.write = async (buffer, position) => {
        if (mode === "durable" && gate) {
          arrive();
          await gate;
        }
        await write(buffer, position);
      };
      return file;
    },
  };
  const hold = () => {
    gate = new Promise((resolve) => {
      release = resolve;
    });
  };
  return { files, hold, reached, release: () => release() };
}

/** The real file system, which counts durable writes and fails one on demand. */
function countingFiles() {
  let writes = 0;
  let failure: string | undefined;
  const files: StorageFiles = {
    ...nodeStorageFiles,
    async open(path, mode) {
      const file = await nodeStorageFiles.open(path, mode);
      if (mode !== "durable") return file;
      const counted: StorageFile = {
        read: (length, position) => file.read(length, position),
        size: () => file.size(),
        truncate: (size) => file.truncate(size),
        sync: () => file.sync(),
        close: () => file.close(),
        async write(buffer, position) {
          writes++;
          if (failure) throw new Error(failure);
          await file.write(buffer, position);
        },
      };
      return counted;
    },
  };
  const failNext = (message: string) => {
    failure = message;
  };
  return { files, writes: () => writes, failNext };
}
