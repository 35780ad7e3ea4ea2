import { rm } from "node:fs/promises";
import { join } from "node:path";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, describe, expect, it } from "vitest";
import { verifyTlogProof } from "../notes/verify-tlog-proof.ts";
import { EventStore } from "./event-store.ts";
import {
  entries,
  entryAt,
  LogDirectories,
  naiveRoot,
  ORIGIN,
  openLog,
  readAll,
  signer,
  texts,
  trust,
} from "./testing/sample-log.ts";

const directories = new LogDirectories();
afterAll(() => directories.close());

describe("the event log", () => {
  it("append: entries are read back over segments, also after it is opened again", async () => {
    const directory = directories.next();
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
      directory: directories.next(),
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
    const directory = directories.next();
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
    const { log } = await openLog(directories.next());
    await log.append(entries(0, 2));
    expect((await log.read(2)).entries).toEqual([]);
    for (const from of [-1, 3, 0.5])
      await expect(log.read(from)).rejects.toThrow("there is no event");
    await log.close();
  });

  it.each(["", "two\nlines", "a\tb"])("open: the origin %j is refused", async (origin) => {
    const options = { files: nodeStorageFiles, directory: directories.next(), origin };
    await expect(EventStore.open(options)).rejects.toThrow("a log cannot be named");
  });

  it("open: the files of another log and a missing segment are refused", async () => {
    const directory = directories.next();
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
    const directory = directories.next();
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
    const { log } = await openLog(directories.next());
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
    const { log } = await openLog(directories.next());
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
    const { log } = await openLog(directories.next());
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
