// holds: sec-log-rewrite

import { Dice } from "@heddle/simulation/dice";
import { plainDisk } from "@heddle/simulation/plain-disk";
import type { SimulatedDisk } from "@heddle/simulation/simulated-disk";
import { describe, expect, it } from "vitest";
import { decodeWalRecord, encodeWalRecord, WAL_KINDS, type WalRecord } from "./wal-record.ts";
import { WriteAheadLog } from "./write-ahead-log.ts";

const OWNER = { cluster: "c1", node: "n1" };
const SEGMENT_BYTES = 1024;

const open = (disk: SimulatedDisk) =>
  WriteAheadLog.open({
    files: disk.mount(),
    directory: "wal",
    owner: OWNER,
    segmentBytes: SEGMENT_BYTES,
  });

const entry = (index: number, bytes = 40): WalRecord => {
  return { kind: WAL_KINDS.entry, term: 1, index, payload: Buffer.alloc(bytes, index) };
};

async function indexes(disk: SimulatedDisk): Promise<number[]> {
  const { log, recovered } = await open(disk);
  await log.close();
  return recovered.entries.map(({ index }) => index);
}

function segments(disk: SimulatedDisk): string[] {
  return disk.paths().filter((path) => path.endsWith(".log"));
}

/** A log of which all but the last entries are released; its last segment is a reused file. */
async function usedLog(disk: SimulatedDisk, until: number): Promise<number[]> {
  const { log } = await open(disk);
  for (let index = 1; index <= until; index++) {
    await log.append([entry(index)]);
    await log.release(index - 5);
  }
  await log.close();
  const found = await indexes(disk);
  expect(found.at(-1)).toBe(until);
  return found;
}

function endOf(bytes: Buffer): number {
  let offset = 0;
  let group = -1;
  for (;;) {
    const record = decodeWalRecord(bytes, offset);
    if (!record || record.group < group) return offset;
    group = record.group;
    offset += record.stride;
  }
}

describe("a segment in a reused file", () => {
  it("is overwritten without zeroing, and no more files exist than needed", async () => {
    const disk = plainDisk(1);
    let filled = 0;
    const openFile = disk.open.bind(disk);
    disk.open = (path, mode) => {
      if (mode === "buffered" && path.endsWith("next.tmp")) filled++;
      return openFile(path, mode);
    };
    await usedLog(disk, 200);
    const filledAtFirst = filled;
    const { log } = await open(disk);
    for (let index = 201; index <= 600; index++) {
      await log.append([entry(index)]);
      await log.release(index - 5);
      expect(disk.paths().length).toBeLessThanOrEqual(5);
    }
    await log.close();
    expect(filled).toBe(filledAtFirst);
    expect(filledAtFirst).toBeLessThanOrEqual(4);
  });

  // holds: wal-torn
  it("holds whole records of its former use after its end, and none of them is read", async () => {
    const ends = new Set<number>();
    for (let until = 100; until < 130; until++) {
      const disk = plainDisk(until);
      const found = await usedLog(disk, until);
      expect(found).toEqual(Array.from({ length: found.length }, (_, i) => (found[0] ?? 0) + i));
      const bytes = disk.content(segments(disk).at(-1) as string);
      const end = endOf(bytes);
      const leftover = decodeWalRecord(bytes, end);
      if (leftover?.kind === WAL_KINDS.entry && leftover.index < until) ends.add(end);
    }
    expect(ends.size).toBeGreaterThan(5);
  });

  // holds: wal-torn
  it("loses only the last group if that was torn, at any byte", async () => {
    let tears = 0;
    for (const until of [100, 105, 110]) {
      const disk = plainDisk(1);
      const kept = await usedLog(disk, until);
      const path = segments(disk).at(-1) as string;
      const before = Buffer.from(disk.content(path));
      const { log } = await open(disk);
      await log.append([entry(until + 1), entry(until + 2)]);
      await log.close();
      // If it did not fit, the group is at the head of the next segment.
      if (segments(disk).at(-1) !== path) continue;
      const after = Buffer.from(disk.content(path));
      const from = endOf(before);
      const to = endOf(after);
      expect(to).toBeGreaterThan(from);
      for (let at = from + 1; at < to; at++) {
        const torn = Buffer.concat([after.subarray(0, at), before.subarray(at)]);
        await (await disk.open(path, "durable")).write(torn, 0);
        const whole = torn.equals(after) ? [until + 1, until + 2] : [];
        expect(await indexes(disk), `torn at byte ${at}`).toEqual([...kept, ...whole]);
        tears++;
      }
    }
    expect(tears).toBeGreaterThan(100);
  });

  it("continues after a torn write in it, and keeps later writes", async () => {
    const disk = plainDisk(1);
    const kept = await usedLog(disk, 100);
    const path = segments(disk).at(-1) as string;
    const end = endOf(disk.content(path));
    const { log } = await open(disk);
    await log.append([entry(101), entry(102)]);
    await log.close();
    disk.flipBit(path, end + 50, 1);
    const again = await open(disk);
    expect(again.recovered.tornBytes).toBeGreaterThan(0);
    await again.log.append([entry(101, 50)]);
    for (let index = 102; index < 140; index++) await again.log.append([entry(index)]);
    await again.log.close();
    const more = Array.from({ length: 39 }, (_, i) => 101 + i);
    expect(await indexes(disk)).toEqual([...kept, ...more]);
  });

  it("is refused for a flipped bit in any byte acknowledged before its last group", async () => {
    const disk = plainDisk(1);
    await usedLog(disk, 109);
    const path = segments(disk).at(-1) as string;
    const bytes = Buffer.from(disk.content(path));
    const last = endOf(bytes) - 72;
    let flips = 0;
    for (let offset = 0; offset < last; ) {
      const record = decodeWalRecord(bytes, offset);
      for (let at = 0; at < 32 + (record?.payload.byteLength ?? 0); at++) {
        disk.flipBit(path, offset + at, flips % 8);
        await expect(open(disk), `byte ${offset + at}`).rejects.toThrow(/corrupt/);
        disk.flipBit(path, offset + at, flips % 8);
        flips++;
      }
      offset += record?.stride ?? 8;
    }
    expect(flips).toBeGreaterThan(200);
  });

  // holds: wal-power-cut
  it("costs no acknowledged entry in any power cut: 300 seeds", async () => {
    let reused = 0;
    for (let seed = 1; seed <= 300; seed++) {
      const dice = new Dice(seed, "log");
      const disk = plainDisk(seed);
      let acknowledged = 0;
      let released = 0;
      for (let start = 0; start < 4; start++) {
        const { log, recovered } = await open(disk);
        const found = recovered.entries.map(({ index }) => index);
        const first = found[0] ?? 1;
        expect(found, `seed ${seed}`).toEqual(found.map((_, i) => first + i));
        expect(first, `seed ${seed}`).toBeLessThanOrEqual(released + 1);
        let next = first + found.length;
        expect(next - 1, `seed ${seed}`).toBeGreaterThanOrEqual(acknowledged);
        const groups = dice.whole(1, 60);
        for (let group = 0; group < groups; group++) {
          const records = Array.from({ length: dice.whole(1, 4) }, () =>
            entry(next++, dice.whole(0, 120)),
          );
          const durable = log.append(records);
          if (group + 1 === groups) {
            durable.catch(() => undefined);
            break;
          }
          await durable;
          acknowledged = next - 1;
          if (!dice.chance(0.3)) continue;
          released = Math.max(released, acknowledged - dice.whole(0, 10));
          await log.release(released);
        }
        disk.crash();
      }
      reused += segments(disk).filter((path) => disk.content(path).includes('"reused"')).length;
    }
    expect(reused).toBeGreaterThan(100);
  });
});

it("reused segments: a group's number continues beyond 32 bits", () => {
  const bytes = Buffer.alloc(128);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const group = 5 * 2 ** 32 + 7;
  encodeWalRecord({ bytes, view }, 0, entry(1), { previousCrc: 9, group, endsGroup: true });
  expect(decodeWalRecord(bytes, 0)).toMatchObject({ group, previousCrc: 9, index: 1 });
});

describe("a renewed log", () => {
  it("continues in a file of zeros, and no old bytes remain once released", async () => {
    const disk = plainDisk(5);
    const secret = Buffer.alloc(40, "secret");
    const { log } = await open(disk);
    for (let index = 1; index <= 90; index++) {
      await log.append([{ ...entry(index), payload: secret }]);
      await log.release(index - 20);
    }
    const holders = () => disk.paths().filter((path) => disk.content(path).includes(secret));
    // Segments, spares and the prepared file of the next segment.
    expect(holders().filter((path) => path.endsWith(".tmp")).length).toBeGreaterThan(0);
    await log.renew();
    for (let index = 91; index <= 99; index++) await log.append([entry(index)]);
    expect(holders().every((path) => path.endsWith(".log"))).toBe(true);
    await log.release(91);
    expect(holders()).toEqual([]);
    await log.close();
    expect((await indexes(disk)).at(-1)).toBe(99);
  });

  it("loses no acknowledged entry in a power cut during the renewal: 100 seeds", async () => {
    for (let seed = 0; seed < 100; seed++) {
      const disk = plainDisk(seed);
      const kept = await usedLog(disk, 60 + (seed % 7));
      const { log } = await open(disk);
      // The power cut ends the process, which never sees the result.
      log.renew().catch(() => undefined);
      for (let turn = 0; turn < seed; turn++) await Promise.resolve();
      disk.crash();
      expect(await indexes(disk), `seed ${seed}`).toEqual(kept);
    }
  });
});
