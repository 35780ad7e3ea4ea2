// holds: events-verify-export, events-verify-directory

import { generateKeyPairSync } from "node:crypto";
import { Dice } from "@heddle/simulation/dice";
import { plainDisk } from "@heddle/simulation/plain-disk";
import type { SimulatedDisk } from "@heddle/simulation/simulated-disk";
import { decodeWalRecord, WAL_HEADER_BYTES } from "@heddle/storage/wal-record";
import { beforeAll, describe, expect, it } from "vitest";
import { exportLines } from "../export/export-lines.ts";
import { EventStore } from "../log/event-store.ts";
import { noteSigner, parseVerifierKey } from "../notes/note-key.ts";
import { formatNote, type SignedNote } from "../notes/signed-note.ts";
import { exportLinesOf } from "./export-reader.ts";
import { verifyDirectory } from "./verify-directory.ts";
import { verifyExport } from "./verify-export.ts";

const ORIGIN = "log.example/events";
const signer = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const other = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const trust = { origin: ORIGIN, keys: [parseVerifierKey(signer.verifierKey)] };

const entries = (from: number, to: number, name = "event") =>
  Array.from({ length: to - from }, (_, at) => Buffer.from(`${name} ${from + at}`));

const openLog = async (disk: SimulatedDisk) => {
  const options = { files: disk, directory: "log", origin: ORIGIN, segmentEntries: 256 };
  return (await EventStore.open({ ...options, growBytes: 4_096 })).log;
};

/** A log of 700 entries with checkpoints at 300 and 700. */
async function newLog(disk = plainDisk(1), name = "event") {
  const log = await openLog(disk);
  await log.append(entries(0, 300));
  const old = await log.sign([signer]);
  await log.append(entries(300, 700, name));
  const note = await log.sign([signer]);
  return { disk, log, old, note };
}

async function linesOf(log: EventStore, first: number, end: number, since?: number) {
  const lines: string[] = [];
  for await (const line of exportLines(log, { first, end, since })) lines.push(line);
  return lines;
}

async function* each<T>(lines: readonly T[]): AsyncGenerator<T> {
  yield* lines;
}

const entryLine = (lines: readonly string[], sequence: number) =>
  lines.findIndex((line) => line.startsWith(`{"entry":{"sequence":${sequence},`));

describe("an export", () => {
  let log: EventStore;
  let fork: EventStore;
  let old: SignedNote;
  let note: SignedNote;
  let lines: string[];
  const faultsOf = async (changed: readonly string[], known: readonly SignedNote[] = []) =>
    (await verifyExport(each(changed), trust, known)).faults;
  const kindsOf = async (changed: readonly string[], known: readonly SignedNote[] = []) =>
    (await faultsOf(changed, known)).map(({ kind }) => kind);

  beforeAll(async () => {
    ({ log, old, note } = await newLog());
    ({ log: fork } = await newLog(plainDisk(1), "forged"));
    lines = await linesOf(log, 250, 650);
  });

  it("verifies, whatever its range, also against older checkpoints", async () => {
    expect(await verifyExport(each(lines), trust, [old, note])).toEqual({
      first: 250,
      end: 650,
      size: 700,
      earlier: 1,
      faults: [],
    });
    for (const [first, end] of [
      [0, 700],
      [0, 1],
      [699, 700],
      [256, 512],
    ] as const) {
      const range = await linesOf(log, first, end, 300);
      expect(await faultsOf(range, [old]), `${first} to ${end}`).toEqual([]);
    }
  });

  it("is refused for ranges that the log or its checkpoint does not have", async () => {
    await expect(linesOf(log, 5, 5)).rejects.toThrow("no events are from 5 to before 5");
    await expect(linesOf(log, 0, 701)).rejects.toThrow(
      "covers 700 events, and the export needs 701",
    );
    const empty = await openLog(plainDisk(1));
    await expect(linesOf(empty, 0, 1)).rejects.toThrow("covers 0 events");
  });

  it("has a bounded number of earlier checkpoints, and that of the asked size", async () => {
    const often = await openLog(plainDisk(1));
    for (let at = 0; at < 300; at++) {
      await often.append(entries(at, at + 1));
      await often.sign([signer]);
    }
    const sizesOf = async (first: number, end: number, since?: number) =>
      (await linesOf(often, first, end, since))
        .filter((line) => line.startsWith('{"earlier"'))
        .map((line) => Number(line.split("\\n")[1]));
    const all = await sizesOf(0, 300);
    expect(all.length).toBeLessThanOrEqual(64);
    expect(all.length).toBeGreaterThan(50);
    expect(await sizesOf(100, 103)).toEqual([100, 101, 102, 103]);
    expect(await sizesOf(100, 101, 17)).toEqual([17, 100, 101]);
    expect((await verifyExport(each(await linesOf(often, 0, 300)), trust)).faults).toEqual([]);
  });

  it("shows a changed byte in any part of any line", async () => {
    const dice = new Dice(2, "bytes");
    for (let run = 0; run < 300; run++) {
      const at = run < 100 ? run % 2 : dice.whole(0, lines.length);
      const line = lines[at]!;
      const place = dice.whole(0, line.length - 1);
      const byte = String.fromCharCode(line.charCodeAt(place) ^ (1 << dice.whole(0, 5)));
      const changed = lines.with(at, line.slice(0, place) + byte + line.slice(place + 1));
      expect(await kindsOf(changed, [old]), `line ${at}, character ${place}`).not.toEqual([]);
    }
  });

  it("changed: names the entries between the checkpoints around it", async () => {
    const at = entryLine(lines, 400);
    const data = Buffer.from("event 401").toString("base64");
    const changed = lines.with(at, `{"entry":{"sequence":400,"data":"${data}"}}\n`);
    expect(await faultsOf(changed)).toEqual([
      {
        kind: "changed",
        message: "entries from 300 to 699 are not those that the checkpoint of the export signs",
      },
    ]);
    const early = lines.with(
      entryLine(lines, 260),
      lines[entryLine(lines, 260)]!.replace("ZX", "ZY"),
    );
    expect((await faultsOf(early))[0]?.message).toBe(
      "entries from 250 to 299 are not those that the checkpoint of 300 entries signs",
    );
  });

  it("removed: an entry that is missing is named", async () => {
    const changed = lines.toSpliced(entryLine(lines, 333), 1);
    expect(await faultsOf(changed)).toEqual([
      { kind: "order", message: "entry 333 is missing: 334 follows instead" },
    ]);
  });

  it("removed: renumbered entries do not hide it", async () => {
    const at = entryLine(lines, 333);
    const later = lines
      .slice(at + 1)
      .map((line) =>
        line.replace(/"sequence":(\d+)/, (_, number) => `"sequence":${Number(number) - 1}`),
      );
    expect(await kindsOf([...lines.slice(0, at), ...later])).toEqual(["truncated"]);
    const head = JSON.parse(lines[0]!);
    head.head.end--;
    const shorter = [`${JSON.stringify(head)}\n`, ...lines.slice(1, at), ...later];
    expect(await kindsOf(shorter)).toEqual(["malformed"]);
    const last = lines.at(-1)!;
    expect(await kindsOf([...lines.slice(0, at), ...later, last])).toEqual(["changed"]);
  });

  it("inserted and reordered: the entries in the wrong place are named", async () => {
    const at = entryLine(lines, 350);
    expect(await faultsOf(lines.toSpliced(at, 0, lines[at]!))).toEqual([
      { kind: "order", message: "entry 351 is missing: 350 follows again or late" },
    ]);
    const exchanged = lines.with(at, lines[at + 1]!).with(at + 1, lines[at]!);
    expect(await kindsOf(exchanged)).toEqual(["order"]);
    const more = [...lines, `{"entry":{"sequence":650,"data":""}}\n`];
    expect(await faultsOf(more)).toEqual([
      { kind: "order", message: "entry 650 follows the end, 650" },
    ]);
  });

  it("truncated: an early end is named, wherever it is", async () => {
    expect(await faultsOf(lines.slice(0, -1))).toEqual([
      { kind: "truncated", message: "the export ends with entry 648, not 649" },
    ]);
    expect(await kindsOf(lines.slice(0, 1))).toEqual(["truncated"]);
    expect(await kindsOf([])).toEqual(["truncated"]);
    expect(await kindsOf(lines.with(-1, lines.at(-1)!.slice(0, 20)))).toEqual(["malformed"]);
  });

  it("fork: signed checkpoints of two histories are found", async () => {
    const forged = fork.checkpoint!;
    expect(await kindsOf(lines, [forged])).toEqual(["fork"]);
    const whole = await linesOf(log, 0, 700);
    expect(await kindsOf(whole, [forged])).toEqual(["fork"]);
    await fork.append(entries(700, 701));
    const later = await linesOf(fork, 600, 701 - 1);
    // The checkpoint of 700 entries is neither in that export nor is its tree the last one.
    await fork.sign([signer]);
    const longer = await linesOf(fork, 690, 701);
    expect(await kindsOf(longer, [note])).toEqual(["fork"]);
    expect(await kindsOf(later, [note])).toEqual(["fork"]);
    const line = longer.findIndex(
      (each) => each.includes('{"earlier"') && each.includes("\\n700\\n"),
    );
    const { earlier } = JSON.parse(longer[line]!);
    const swapped = JSON.stringify({ earlier: { ...earlier, checkpoint: formatNote(note) } });
    expect(await faultsOf(longer.with(line, swapped))).toEqual([
      {
        kind: "fork",
        message: "the checkpoints of 700 and of 701 entries are not of one history",
      },
    ]);
    expect(await kindsOf(longer.toSpliced(line, 1), [note])).toEqual(["fork"]);
  });

  it("uncovered: a given checkpoint that nothing compares is named", async () => {
    const extra = await newLog();
    await extra.log.append(entries(700, 710));
    await extra.log.sign([signer]);
    const without = (await linesOf(extra.log, 705, 710)).filter(
      (line) => !line.includes("earlier"),
    );
    expect(await kindsOf(without, [note])).toEqual(["uncovered"]);
    expect(await kindsOf(lines, [extra.log.checkpoint!])).toEqual(["uncovered"]);
  });

  it("key: the checkpoint of an unknown key is refused, in every place", async () => {
    const disk = plainDisk(1);
    const foreign = await openLog(disk);
    await foreign.append(entries(0, 300));
    const early = await foreign.sign([other]);
    await foreign.append(entries(300, 400));
    await foreign.sign([other]);
    expect(await kindsOf(await linesOf(foreign, 0, 400))).toEqual(["key"]);
    await foreign.append(entries(400, 401));
    await foreign.sign([signer]);
    expect(await kindsOf(await linesOf(foreign, 0, 401))).toEqual(["key"]);
    expect(await kindsOf(lines, [early])).toEqual(["key"]);
    const both = { ...trust, keys: [...trust.keys, parseVerifierKey(other.verifierKey)] };
    const report = await verifyExport(each(await linesOf(foreign, 0, 401)), both);
    expect(report).toMatchObject({ earlier: 2, faults: [] });
    const elsewhere = await verifyExport(each(lines), { ...trust, origin: "another.example" });
    expect(elsewhere.faults[0]?.message).toContain("not of another.example");
  });

  it.each([
    ["no JSON", "x", "is no JSON"],
    ["no object", "3", "no JSON object"],
    ["another object", "{}", "no head, earlier checkpoint or entry"],
    ["an entry first", '{"entry":{"sequence":0,"data":""}}', "the first line is no head"],
    ["another format", '{"head":{"format":"x"}}', "its format is x"],
    [
      "no hashes",
      '{"head":{"format":"heddle-events/1","first":0,"end":1,"checkpoint":""}}',
      "hashes",
    ],
  ])("malformed: %s is refused", async (_, line, message) => {
    const [fault] = await faultsOf([line]);
    expect(fault).toMatchObject({ kind: "malformed", message: expect.stringContaining(message) });
  });

  it("malformed: two heads, and lines of too many characters, are refused", async () => {
    expect(await kindsOf([lines[0]!, lines[0]!])).toEqual(["malformed"]);
    expect(await kindsOf([lines[0]!, "x".repeat(4_000_001)])).toEqual(["malformed"]);
    const endless = exportLinesOf(each([Buffer.from(lines[0]!), Buffer.alloc(4_000_001, 120)]));
    expect((await verifyExport(endless, trust)).faults).toMatchObject([{ kind: "malformed" }]);
  });

  it("lines: are those of the file, however it is cut into pieces", async () => {
    const bytes = Buffer.from(`${lines.join("")}é`);
    const pieces = Array.from({ length: Math.ceil(bytes.byteLength / 7) }, (_, at) =>
      bytes.subarray(at * 7, at * 7 + 7),
    );
    const found: string[] = [];
    for await (const line of exportLinesOf(each(pieces))) found.push(line);
    expect(found).toEqual([...lines.map((line) => line.trimEnd()), "é"]);
  });
});

describe("a directory", () => {
  const check = (disk: SimulatedDisk, known: readonly SignedNote[] = []) =>
    verifyDirectory({ files: disk, directory: "log" }, trust, known);
  const kindsOf = async (disk: SimulatedDisk, known: readonly SignedNote[] = []) =>
    (await check(disk, known)).faults.map(({ kind }) => kind);

  it("verifies, also with removed segments and an unfinished write", async () => {
    const { disk, log, old } = await newLog();
    const whole = { first: 0, size: 700, signed: 700, checkpoints: 2, faults: [] };
    await log.close();
    expect(await check(disk, [old])).toEqual(whole);
    const again = await openLog(disk);
    expect(await again.prune(600)).toBe(512);
    await again.append(entries(700, 702));
    await again.close();
    const path = "log/events-0000000000000512.log";
    const used = disk.content(path).findLastIndex((byte) => byte !== 0);
    const file = await disk.open(path, "durable");
    await file.write(Buffer.alloc(20, 7), Math.ceil((used + 1) / 8) * 8);
    const report = { ...whole, first: 512, size: 702 };
    expect(await check(disk, [old])).toMatchObject({ ...report, faults: [{ kind: "unfinished" }] });
    await (await openLog(disk)).close();
    expect(await check(disk, [old])).toEqual(report);
  });

  it("shows a changed byte in any entry, hash or checkpoint", async () => {
    const { disk, log } = await newLog();
    await log.close();
    const dice = new Dice(3, "bytes");
    const paths = disk.paths().filter((path) => disk.content(path).byteLength > 0);
    expect(paths).toHaveLength(6);
    let found = 0;
    for (let run = 0; run < 120; run++) {
      const path = paths[run % paths.length]!;
      const before = Buffer.from(disk.content(path));
      const byte = dice.whole(0, before.findLastIndex((each) => each !== 0) + 1);
      const bit = dice.whole(0, 8);
      disk.flipBit(path, byte, bit);
      if ((await kindsOf(disk)).length > 0) found++;
      else
        expect(path.endsWith(".log") && isPadding(before, byte), `${byte} of ${path}`).toBe(true);
      disk.flipBit(path, byte, bit);
    }
    expect(await kindsOf(disk)).toEqual([]);
    expect(found).toBeGreaterThan(100);
  });

  it("names a missing segment, and one that is cut", async () => {
    const { disk, log } = await newLog();
    await log.close();
    await disk.remove("log/events-0000000000000256.log");
    expect(await check(disk)).toMatchObject({
      faults: [{ kind: "order", message: "the files of entries 256 to 511 are missing" }],
    });
    const cut = await newLog();
    await cut.log.close();
    const file = await cut.disk.open("log/events-0000000000000512.log", "durable");
    await file.truncate(300);
    expect(await kindsOf(cut.disk)).toEqual(["unfinished", "truncated"]);
  });

  it("names hashes of removed entries that are missing, and does not read on", async () => {
    const { disk, log } = await newLog();
    await log.prune(600);
    await log.close();
    await disk.rename("log/events-0000000000000512.log", "log/events-0009000000000000.log");
    const { faults } = await check(disk);
    expect(faults).toMatchObject([
      { kind: "changed", message: expect.stringContaining("it ends") },
    ]);
  });

  it("finds a log that was written again, and one that is shorter than it was", async () => {
    const { note, old } = await newLog();
    const { disk, log } = await newLog(plainDisk(1), "forged");
    await log.close();
    expect(await kindsOf(disk, [old])).toEqual([]);
    expect(await kindsOf(disk, [note])).toEqual(["fork"]);
    const short = plainDisk(1);
    const shorter = await openLog(short);
    await shorter.append(entries(0, 300));
    await shorter.sign([signer]);
    await shorter.close();
    expect(await check(short, [note])).toMatchObject({
      faults: [{ kind: "truncated", message: expect.stringContaining("the last 400 are missing") }],
    });
  });

  it("refuses checkpoints of an unknown key, and a log without any", async () => {
    const disk = plainDisk(1);
    const log = await openLog(disk);
    await log.append(entries(0, 3));
    await log.close();
    expect(await kindsOf(disk)).toEqual(["uncovered"]);
    const again = await openLog(disk);
    await again.sign([other]);
    await again.close();
    expect(await kindsOf(disk)).toEqual(["key"]);
  });
});

/** Whether no record has the byte: zeros after the last one and between them mean nothing. */
function isPadding(content: Buffer, byte: number): boolean {
  for (let offset = 0; ; ) {
    const record = decodeWalRecord(content, offset);
    if (!record) return byte >= offset;
    if (byte < offset + WAL_HEADER_BYTES + record.payload.byteLength) return false;
    offset += record.stride;
    if (byte < offset) return true;
  }
}
