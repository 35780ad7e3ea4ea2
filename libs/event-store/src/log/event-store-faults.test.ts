import { Dice } from "@heddle/simulation/dice";
import { FailingFiles } from "@heddle/simulation/failing-files";
import { plainDisk } from "@heddle/simulation/plain-disk";
import type { StorageFiles } from "@heddle/storage/storage-files";
import { describe, expect, it } from "vitest";
import { parseCheckpoint } from "../notes/checkpoint.ts";
import { entries, naiveRoot, openLog, readAll, signer, texts } from "./testing/sample-log.ts";

describe("a log whose machine fails", () => {
  // holds: events-power-cut
  it("power cut: no acknowledged entry is lost, at any operation", async () => {
    let crossed = 0;
    for (let seed = 0; seed < 60; seed++) {
      const disk = plainDisk(seed);
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
    const disk = plainDisk(1);
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
      const torn = plainDisk(2);
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
    const disk = plainDisk(3);
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
    const whole = new FailingFiles(plainDisk(1), -1, code);
    expect(await use(whole)).toEqual({ entries: 630, signed: 630 });
    expect(whole.operations).toBeGreaterThan(60);
    for (let at = 0; at < whole.operations; at++) {
      const disk = plainDisk(at);
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
    const disk = plainDisk(5);
    const { log } = await openLog("log", disk);
    await log.append(entries(0, 10));
    disk.faults.failures = 1;
    const failed = [log.append(entries(10, 20)), log.append(entries(20, 30))];
    const fault = {
      status: "rejected",
      reason: { message: expect.stringContaining("cannot write") },
    };
    expect(await Promise.allSettled(failed)).toMatchObject([fault, fault]);
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
