import { readdirSync } from "node:fs";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { afterAll, expect, test } from "vitest";
import { leafHash } from "../merkle/hash.ts";
import { TILE_WIDTH } from "../merkle/tile.ts";
import { isIncluded } from "../merkle/verify-proof.ts";
import { parseCheckpoint } from "../notes/checkpoint.ts";
import { verifyDirectory } from "../verify/verify-directory.ts";
import type { ReadLeaves } from "./begin-at.ts";
import { EventStore } from "./event-store.ts";
import {
  entries,
  entryAt,
  LogDirectories,
  ORIGIN,
  openLog,
  readAll,
  signer,
  texts,
  trust,
} from "./testing/sample-log.ts";

const directories = new LogDirectories();
afterAll(() => directories.close());

const SIZE = 1_200;
/** The first entry that the other log keeps. */
const FIRST = 1_024;

const placeIn = (directory: string) => {
  return { files: nodeStorageFiles, directory, origin: ORIGIN, segmentEntries: 256 };
};

/** A log of which retention has left the last entries, and its hashes by tiles. */
async function pruned() {
  const { log } = await openLog(directories.next());
  await log.append(entries(0, SIZE));
  const checkpoint = await log.sign([signer]);
  expect(await log.prune(FIRST)).toBe(FIRST);
  const leaves: ReadLeaves = (first) =>
    log.readTile({ level: 0, index: first / TILE_WIDTH, width: TILE_WIDTH });
  return { log, checkpoint, leaves };
}

// holds: events-retention
test("begin at: a log whose first entries are gone has the tree of the other one", async () => {
  const { log: other, checkpoint, leaves } = await pruned();
  const directory = directories.next();
  const { log: before } = await openLog(directory);
  await before.append(entries(0, 300));
  await before.close();
  await EventStore.beginAt(placeIn(directory), FIRST, leaves);
  const { log } = await openLog(directory);
  expect([log.first, log.size]).toEqual([FIRST, FIRST]);
  await log.append(entries(FIRST, SIZE));
  await log.keep(checkpoint);
  await log.append(entries(SIZE, SIZE + 300));
  await log.sign([signer]);
  const proof = await log.prove(3);
  const head = parseCheckpoint(proof.checkpoint.text);
  expect(isIncluded(leafHash(entryAt(3)), 3, head, proof.hashes)).toBe(true);
  await log.close();
  await other.close();
  const place = { files: nodeStorageFiles, directory };
  expect((await verifyDirectory(place, trust, [])).faults).toEqual([]);
  const { log: again } = await openLog(directory);
  expect(await readAll(again)).toEqual(texts(FIRST, SIZE + 300));
  await again.close();
});

test("begin at: wrong hashes do not have the checkpoint's root", async () => {
  const { log: other, checkpoint, leaves } = await pruned();
  const directory = directories.next();
  await EventStore.beginAt(placeIn(directory), FIRST, async (first) => {
    const tile = Buffer.from(await leaves(first));
    if (first === 512) tile[100]! ^= 1;
    return tile;
  });
  const { log } = await openLog(directory);
  await log.append(entries(FIRST, SIZE));
  await expect(log.keep(checkpoint)).rejects.toThrow("events were changed");
  await log.close();
  await other.close();
});

test("begin at: a reader that fails at any time leaves a log that opens", async () => {
  const { log: other, leaves } = await pruned();
  for (let calls = 0; calls < FIRST / TILE_WIDTH; calls++) {
    const directory = directories.next();
    const { log: before } = await openLog(directory);
    await before.append(entries(0, 600));
    await before.close();
    let left = calls;
    const begun = EventStore.beginAt(placeIn(directory), FIRST, (first) =>
      left-- > 0 ? leaves(first) : Promise.reject(new Error("no peer")),
    );
    await expect(begun).rejects.toThrow("no peer");
    const { log } = await openLog(directory);
    expect([log.first, log.size]).toEqual([0, 0]);
    await log.close();
    await EventStore.beginAt(placeIn(directory), FIRST, leaves);
    expect(readdirSync(directory)).toContain("events-0000000000001024.log");
  }
  const short = EventStore.beginAt(placeIn(directories.next()), FIRST, async () => Buffer.alloc(9));
  await expect(short).rejects.toThrow("no whole tile of hashes from 0 on");
  const odd = EventStore.beginAt(placeIn(directories.next()), 100, leaves);
  await expect(odd).rejects.toThrow("begins at a multiple of 256");
  await other.close();
});
