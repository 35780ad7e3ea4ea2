import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Dice } from "@heddle/simulation/dice";
import { FailingFiles } from "@heddle/simulation/failing-files";
import { SimulatedDisk } from "@heddle/simulation/simulated-disk";
import { nodeStorageFiles, type StorageFiles } from "@heddle/storage/storage-files";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { TreeFrontier } from "../merkle/frontier.ts";
import { leafHash } from "../merkle/hash.ts";
import { isConsistent, isIncluded } from "../merkle/verify-proof.ts";
import { parseCheckpoint, verifyCheckpoint } from "../notes/checkpoint.ts";
import { noteSigner, parseVerifierKey } from "../notes/note-key.ts";
import { formatNote } from "../notes/signed-note.ts";
import { verifyTlogProof } from "../notes/tlog-proof.ts";
import { EventStore } from "./event-store.ts";

const ORIGIN = "log.example/events";
const signer = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
const trust = { origin: ORIGIN, keys: [parseVerifierKey(signer.verifierKey)] };

const entryAt = (at: number) => Buffer.from(`event ${at} ${"x".repeat(at % 50)}`);
const entries = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, at) => entryAt(from + at));

function naiveRoot(size: number): Uint8Array {
  const frontier = new TreeFrontier();
  for (const entry of entries(0, size)) frontier.append(leafHash(entry));
  return frontier.root();
}

let root: string;
let directories = 0;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "heddle-events-"));
});
afterAll(() => rm(root, { recursive: true }));

const newDirectory = () => join(root, String(directories++));
const openLog = async (directory: string, files: StorageFiles = nodeStorageFiles) => {
  const options = { files, directory, origin: ORIGIN, segmentEntries: 256, growBytes: 4_096 };
  return EventStore.open(options);
};

async function readAll(log: EventStore, from = log.first): Promise<string[]> {
  const found: string[] = [];
  for await (const page of log.stream(from)) {
    expect(page.first).toBe(from + found.length);
    found.push(...page.entries.map((entry) => Buffer.from(entry).toString()));
  }
  return found;
}

const texts = (from: number, to: number) => entries(from, to).map(String);

describe("the event log", () => {
  it("append: entries are read back over segments, also after it is opened again", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    expect(log.size).toBe(0);
    const ranges = await Promise.all([
      log.append(entries(0, 3)),
      log.append([]),
      log.append(entries(3, 600)),
      log.append(entries(600, 601)),
    ]);
    expect(ranges.map(({ first, end }) => [first, end])).toEqual([
      [0, 3],
      [0, 0],
      [3, 600],
      [600, 601],
    ]);
    expect(await readAll(log)).toEqual(texts(0, 601));
    await log.close();
    const { log: again, tornBytes } = await openLog(directory);
    expect([again.size, tornBytes]).toEqual([601, 0]);
    expect(await readAll(again)).toEqual(texts(0, 601));
    await again.append(entries(601, 800));
    expect(await readAll(again, 250)).toEqual(texts(250, 800));
    expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(naiveRoot(800)));
    await again.close();
    await expect(again.append([Buffer.of(1)])).rejects.toThrow("closed");
  });

  it("append: an entry that is too large, or too many waiting bytes, are refused", async () => {
    const { log } = await EventStore.open({
      files: nodeStorageFiles,
      directory: newDirectory(),
      origin: ORIGIN,
      maxPendingBytes: 100_000,
    });
    await expect(log.append([Buffer.alloc(65_536)])).rejects.toThrow("65535 are allowed");
    const first = log.append([Buffer.alloc(65_535, 1)]);
    await expect(log.append([Buffer.alloc(65_535)])).rejects.toThrow("wait for the disk");
    await first;
    await log.append([Buffer.alloc(65_535, 2), Buffer.alloc(0)]);
    const { entries: found } = await log.read(1);
    expect(found.map((entry) => entry.byteLength)).toEqual([65_535, 0]);
    await log.close();
  });

  it("read: a page of large entries is bounded, from memory and from the disk", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    const large = Array.from({ length: 100 }, (_, at) => Buffer.alloc(65_535, at));
    await log.append(large);
    const sizesOf = async (opened: EventStore) => {
      const sizes: number[] = [];
      for await (const { entries: found } of opened.stream(0)) {
        const before = sizes.reduce((sum, each) => sum + each, 0);
        for (const [at, entry] of found.entries()) expect(entry[0]).toBe(before + at);
        sizes.push(found.length);
      }
      return sizes;
    };
    expect(Math.max(...(await sizesOf(log)))).toBeLessThanOrEqual(16);
    await log.close();
    const { log: again } = await openLog(directory);
    expect(Math.max(...(await sizesOf(again)))).toBeLessThanOrEqual(16);
    await again.close();
  });

  it("read: numbers that the log does not have are refused", async () => {
    const { log } = await openLog(newDirectory());
    await log.append(entries(0, 2));
    expect((await log.read(2)).entries).toEqual([]);
    for (const from of [-1, 3, 0.5])
      await expect(log.read(from)).rejects.toThrow("there is no event");
    await log.close();
  });

  it.each(["", "two\nlines", "a\tb"])("open: the origin %j is refused", async (origin) => {
    const options = { files: nodeStorageFiles, directory: newDirectory(), origin };
    await expect(EventStore.open(options)).rejects.toThrow("a log cannot be named");
  });

  it("open: the files of another log and a missing segment are refused", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    await log.append(entries(0, 800));
    await log.close();
    const other = { files: nodeStorageFiles, directory, origin: "b", segmentEntries: 256 };
    await expect(EventStore.open(other)).rejects.toThrow(
      "is of the log log.example/events, not of b",
    );
    await rm(join(directory, "events-0000000000000256.log"));
    await expect(openLog(directory)).rejects.toThrow("but not");
  });

  it("open: hashes that are gone are made again from the entries", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    await log.append(entries(0, 700));
    await log.sign([signer]);
    await log.close();
    await rm(join(directory, "level-0.hashes"));
    const { log: again } = await openLog(directory);
    await again.append(entries(700, 1_100));
    expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(naiveRoot(1_100)));
    expect(verifyTlogProof(await again.prove(300), entryAt(300), trust).size).toBe(700);
    await again.close();
  });
});

describe("streams", () => {
  // holds: events-streams
  it("follow: a reader gets each entry once while others append", async () => {
    const { log } = await openLog(newDirectory());
    await log.append(entries(0, 10));
    const abort = new AbortController();
    const found: string[] = [];
    const reading = (async () => {
      for await (const page of log.stream(5, { follow: true, signal: abort.signal })) {
        found.push(...page.entries.map(String));
        if (found.length === 995) abort.abort(new Error("enough"));
      }
    })();
    for (let at = 10; at < 1_000; at += 9) await log.append(entries(at, Math.min(1_000, at + 9)));
    await expect(reading).rejects.toThrow("enough");
    expect(found).toEqual(texts(5, 1_000));
    await log.close();
  });

  it("follow: a waiting reader ends when the log is closed", async () => {
    const { log } = await openLog(newDirectory());
    const stream = log.stream(0, { follow: true });
    const next = stream.next();
    next.catch(() => undefined);
    await log.append(entries(0, 1));
    expect((await next).value).toMatchObject({ first: 0 });
    const waiting = stream.next();
    waiting.catch(() => undefined);
    await log.close();
    await expect(waiting).rejects.toThrow("closed");
  });

  it("pages: a reader that waits does not hold entries, and reads on after seals", async () => {
    const { log } = await openLog(newDirectory());
    await log.append(entries(0, 200));
    const stream = log.stream(0, { follow: true });
    expect((await stream.next()).value).toMatchObject({ first: 0 });
    for (let at = 200; at < 20_000; at += 900) await log.append(entries(at, at + 900));
    const page = await stream.next();
    expect(page.value && [page.value.first, page.value.entries.map(String)]).toEqual([
      200,
      texts(200, 456),
    ]);
    await stream.return();
    await log.close();
  });
});

describe("checkpoints and retention", () => {
  it("sign: the checkpoint is of the entries on the disk, and is kept", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    await log.append(entries(0, 300));
    const note = await log.sign([signer]);
    expect(verifyCheckpoint(note, trust)).toMatchObject({ size: 300 });
    expect(Buffer.from(parseCheckpoint(note.text).root)).toEqual(Buffer.from(naiveRoot(300)));
    const rotated = noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey);
    expect((await log.sign([rotated])).signatures).toHaveLength(2);
    await log.append(entries(300, 301));
    await log.sign([rotated]);
    await log.close();
    const { log: again } = await openLog(directory);
    expect(again.checkpointSizes).toEqual([300, 301]);
    const kept = await again.checkpointFrom(1);
    expect(kept?.signatures).toHaveLength(2);
    expect(verifyCheckpoint(kept!, trust).size).toBe(300);
    expect(() => verifyCheckpoint(again.checkpoint!, trust)).toThrow("no trusted key");
    await again.close();
  });

  it("cosign: only signatures of known witnesses are kept", async () => {
    const { log } = await openLog(newDirectory());
    await log.append(entries(0, 2));
    const note = await log.sign([signer]);
    const seer = noteSigner("witness.example", generateKeyPairSync("ed25519").privateKey);
    const lines = (text: string) =>
      formatNote({ text, signatures: [{ ...seer, signature: seer.sign(text) }] }).split("\n\n")[1]!;
    const witnesses = [parseVerifierKey(seer.verifierKey)];
    await expect(log.cosign(2, lines("other\n"), witnesses)).rejects.toThrow("does not fit");
    await expect(log.cosign(2, lines(note.text), trust.keys)).rejects.toThrow("no trusted key");
    await expect(log.cosign(1, lines(note.text), witnesses)).rejects.toThrow("no checkpoint of 1");
    const unknown = lines(note.text).replace("witness.example", "unknown.example");
    await log.cosign(2, lines(note.text) + unknown, witnesses);
    expect(log.checkpoint?.signatures.map(({ name }) => name)).toEqual([ORIGIN, "witness.example"]);
    await log.close();
  });

  it("sign: a checkpoint takes no more signatures than a note may have", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    const signers = Array.from({ length: 100 }, () =>
      noteSigner(ORIGIN, generateKeyPairSync("ed25519").privateKey),
    );
    await log.sign(signers);
    await expect(log.sign([signer])).rejects.toThrow("101 signatures; 100 are allowed");
    await log.close();
    const { log: again } = await openLog(directory);
    expect(again.checkpoint?.signatures).toHaveLength(100);
    await again.close();
  });

  it("prove: entries and prefixes are shown by proofs, once a checkpoint covers them", async () => {
    const { log } = await openLog(newDirectory());
    await log.append(entries(0, 1_000));
    await expect(log.prove(0)).rejects.toThrow("no checkpoint covers event 0");
    await log.sign([signer]);
    for (const at of [0, 255, 256, 777, 999]) {
      expect(verifyTlogProof(await log.prove(at), entryAt(at), trust).size).toBe(1_000);
    }
    await expect(log.prove(1_000)).rejects.toThrow("no checkpoint covers");
    const proof = await log.proveConsistency(300, 1_000);
    const heads = [300, 1_000].map((size) => ({ size, root: naiveRoot(size) }));
    expect(isConsistent(heads[0]!, heads[1]!, proof)).toBe(true);
    await log.close();
  });

  // holds: events-retention
  it("prune: whole segments that a checkpoint covers go, and their proofs hold", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    await log.append(entries(0, 1_000));
    expect(await log.prune(1_000)).toBe(0);
    await log.sign([signer]);
    expect(await log.prune(600)).toBe(512);
    await expect(log.read(511)).rejects.toThrow("removed by retention; the first kept one is 512");
    expect(await readAll(log)).toEqual(texts(512, 1_000));
    expect(await log.prune(1_000)).toBe(768);
    await log.close();
    const { log: again } = await openLog(directory);
    expect([again.first, again.size]).toEqual([768, 1_000]);
    const proof = await again.prove(3);
    const head = parseCheckpoint(proof.checkpoint.text);
    expect(isIncluded(leafHash(entryAt(3)), 3, head, proof.hashes)).toBe(true);
    await again.append(entries(1_000, 1_300));
    expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(naiveRoot(1_300)));
    await again.close();
  });

  // holds: events-lost
  it("open: a checkpoint beyond the entries, or of other ones, is refused", async () => {
    const directory = newDirectory();
    const { log } = await openLog(directory);
    await log.append(entries(0, 300));
    await log.sign([signer]);
    await log.append(entries(300, 600));
    await log.sign([signer]);
    await log.close();
    const last = join(directory, "events-0000000000000512.log");
    const file = await nodeStorageFiles.open(last, "buffered");
    await file.truncate(2_000);
    await file.close();
    await expect(openLog(directory)).rejects.toThrow(
      "its last checkpoint covers 600: events were lost",
    );
    const level = await nodeStorageFiles.open(join(directory, "level-1.hashes"), "buffered");
    await level.write(Buffer.alloc(32, 9), 0);
    await level.close();
    await rm(last);
    const { log: shorter } = await openLog(newDirectory());
    await shorter.close();
    await expect(openLog(directory)).rejects.toThrow(/events were lost|were changed/);
  });
});

describe("a log whose machine fails", () => {
  const newDisk = (seed: number) =>
    new SimulatedDisk({
      dice: new Dice(seed, "disk"),
      after: (_delayUs, run) => queueMicrotask(run),
      latencyUs: () => 0,
      notify: (run) => run(),
      onDurable: () => undefined,
      onMisuse: (what) => {
        throw new Error(what);
      },
    });

  // holds: events-power-cut
  it("power cut: no acknowledged entry is lost, at any operation", async () => {
    let crossed = 0;
    for (let seed = 0; seed < 60; seed++) {
      const disk = newDisk(seed);
      const { log } = await openLog("log", disk.mount());
      let acknowledged = 0;
      let signed = 0;
      const dice = new Dice(seed, "load");
      const work = (async () => {
        for (let at = 0; at < 900; ) {
          const count = dice.whole(1, 120);
          const range = await log.append(entries(at, at + count));
          at = range.end;
          acknowledged = at;
          if (dice.chance(0.2)) signed = parseCheckpoint((await log.sign([signer])).text).size;
        }
      })();
      await Promise.race([work, turns(dice.whole(1, 400))]);
      disk.crash();
      const { log: again } = await openLog("log", disk.mount());
      expect(again.size, `seed ${seed}`).toBeGreaterThanOrEqual(acknowledged);
      expect(again.checkpointSizes.at(-1) ?? 0, `seed ${seed}`).toBeGreaterThanOrEqual(signed);
      expect(await readAll(again), `seed ${seed}`).toEqual(texts(0, again.size));
      const next = again.size;
      if (next > 256) crossed++;
      await again.append(entries(next, next + 300));
      expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(naiveRoot(next + 300)));
      await again.close();
    }
    expect(crossed).toBeGreaterThan(10);
  });

  // holds: events-torn
  it("torn write: cut at any byte of the last group, the entries before it are there", async () => {
    const disk = newDisk(1);
    const { log } = await openLog("log", disk);
    await log.append(entries(0, 5));
    const whole = Buffer.from(disk.content("log/events-0000000000000000.log"));
    await log.append(entries(5, 8));
    await log.close();
    const path = "log/events-0000000000000000.log";
    const full = Buffer.from(disk.content(path));
    const used = full.findLastIndex((byte) => byte !== 0) + 1;
    const before = whole.findLastIndex((byte) => byte !== 0) + 1;
    const start = Math.ceil(before / 8) * 8;
    expect(used - start).toBeGreaterThan(100);
    for (let cut = before; cut < used; cut++) {
      const torn = newDisk(2);
      const file = await torn.open(path, "durable");
      await file.write(Buffer.concat([full.subarray(0, cut), Buffer.alloc(500)]), 0);
      await torn.syncDirectory();
      const { log: again, tornBytes } = await openLog("log", torn);
      const left = full.subarray(start, Math.max(start, cut)).findLastIndex((byte) => byte !== 0);
      expect([again.size, tornBytes], `cut at ${cut}`).toEqual([5, left + 1]);
      await again.append(entries(5, 9));
      await again.close();
      const { log: last } = await openLog("log", torn);
      expect(await readAll(last), `cut at ${cut}`).toEqual(texts(0, 9));
      await last.close();
    }
  });

  // holds: events-bit-rot
  it("bit rot: a changed byte before the last group is refused or read as an error", async () => {
    const disk = newDisk(3);
    const { log } = await openLog("log", disk);
    for (let at = 0; at < 400; at += 20) await log.append(entries(at, at + 20));
    await log.close();
    const dice = new Dice(4, "bits");
    let found = 0;
    for (let run = 0; run < 150; run++) {
      const path = dice.pick([
        "log/events-0000000000000000.log",
        "log/events-0000000000000256.log",
      ]);
      const used = disk.content(path).findLastIndex((byte) => byte !== 0);
      const byte = dice.whole(0, path.includes("256") ? Math.floor(used * 0.8) : used);
      disk.flipBit(path, byte, 3);
      const outcome = await openLog("log", disk).then(
        async ({ log: opened }) => {
          const read = await readAll(opened).catch((error: unknown) => String(error));
          await opened.close();
          return read;
        },
        (error: unknown) => String(error),
      );
      // Padding has no checksum, and no meaning.
      if (typeof outcome === "string") {
        expect(outcome).toMatch(/corrupt|damaged|does not continue/);
        found++;
      } else expect(outcome).toEqual(texts(0, 400));
      disk.flipBit(path, byte, 3);
    }
    expect(found).toBeGreaterThan(120);
    const { log: again } = await openLog("log", disk);
    expect(await readAll(again)).toEqual(texts(0, 400));
    await again.close();
  });

  // holds: events-io-errors
  it.each(["ENOSPC", "EIO"])("%s at any operation: what was answered is there", async (code) => {
    const use = async (files: StorageFiles) => {
      const done = { entries: 0, signed: 0 };
      try {
        const { log } = await openLog("log", files);
        try {
          for (let at = 0; at < 600; at += 90) {
            done.entries = (await log.append(entries(at, at + 90))).end;
            if (at % 180 === 0) done.signed = parseCheckpoint((await log.sign([signer])).text).size;
            await log.prune(at - 90);
          }
        } finally {
          await log.close();
        }
      } catch (error) {
        expect(String(error)).toMatch(/it fails/);
      }
      return done;
    };
    const whole = new FailingFiles(newDisk(1), -1, code);
    expect(await use(whole)).toEqual({ entries: 630, signed: 630 });
    expect(whole.operations).toBeGreaterThan(60);
    for (let at = 0; at < whole.operations; at++) {
      const disk = newDisk(at);
      const files = new FailingFiles(disk, at, code);
      const done = await use(files);
      expect(files.stillOpen.size, `files open after operation ${at}`).toBe(0);
      disk.crash();
      const { log } = await openLog("log", disk);
      expect(log.size, `operation ${at}`).toBeGreaterThanOrEqual(done.entries);
      expect(log.checkpointSizes.at(-1) ?? 0).toBeGreaterThanOrEqual(done.signed);
      expect(await readAll(log), `operation ${at}`).toEqual(texts(log.first, log.size));
      await log.append(entries(log.size, log.size + 300));
      expect(Buffer.from(await log.tree().root())).toEqual(Buffer.from(naiveRoot(log.size)));
      await log.close();
    }
  });

  it.each(["ENOSPC", "EIO"])("%s: the log refuses all after a failed write", async (code) => {
    const disk = newDisk(5);
    const { log } = await openLog("log", disk);
    await log.append(entries(0, 10));
    disk.faults.failures = 1;
    const failed = [log.append(entries(10, 20)), log.append(entries(20, 30))];
    for (const each of failed) await expect(each).rejects.toThrow("cannot write");
    disk.faults.failures = 0;
    await expect(log.append(entries(10, 11))).rejects.toThrow("cannot write");
    expect(log.size).toBe(10);
    await log.close();
    disk.crash();
    const { log: again } = await openLog("log", disk);
    expect(await readAll(again)).toEqual(texts(0, again.size));
    expect(again.size, code).toBeGreaterThanOrEqual(10);
    await again.close();
  });
});

/** Lets a number of turns of the loop pass. */
async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await undefined;
}
