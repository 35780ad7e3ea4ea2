import { plainDisk } from "@heddle/simulation/plain-disk";
import { expect, it } from "vitest";
import { TreeFrontier } from "../merkle/frontier.ts";
import { leafHash } from "../merkle/hash.ts";
import { TileTree } from "../merkle/proofs.ts";
import { EventStore } from "./event-store.ts";
import { HashLevels } from "./hash-levels.ts";
import { entries, naiveRoot, ORIGIN } from "./testing/sample-log.ts";
import { TreeWriter } from "./tree-writer.ts";

async function newTree() {
  const levels = new HashLevels(plainDisk(0), "log", 256 ** 2, 0);
  const tree = await TreeWriter.after(0, levels);
  const root = async () => Buffer.from(await new TileTree(tree.size, levels.readTile).root());
  return { tree, root };
}

it("add: entries are hashed in steps, to the root of one after the other", async () => {
  const { tree, root } = await newTree();
  tree.add(entries(0, 100));
  expect(tree.size).toBe(100);
  tree.add(entries(100, 1_000));
  const first = tree.size;
  expect(first).toBeLessThanOrEqual(100 + 256);
  expect(await root()).toEqual(Buffer.from(naiveRoot(first)));
  tree.add(entries(1_000, 1_300));
  await tree.reach(1_300);
  expect(tree.size).toBe(1_300);
  expect(await root()).toEqual(Buffer.from(naiveRoot(1_300)));
});

it("add: waiting entries are hashed in later turns without a further call", async () => {
  const { tree } = await newTree();
  tree.add(entries(0, 2_000));
  await expect.poll(() => tree.size).toBe(2_000);
});

it("within: at most that many bytes wait, and no more is hashed than that needs", async () => {
  const { tree } = await newTree();
  tree.add(Array.from({ length: 100 }, (_, at) => Buffer.alloc(10_000, at)));
  await tree.within(500_000);
  expect(tree.size).toBeGreaterThanOrEqual(50);
  expect(tree.size).toBeLessThan(65);
  await tree.within(0);
  expect(tree.size).toBe(100);
});

it("append: a root that is asked for at once has every entry", async () => {
  const options = { files: plainDisk(1), directory: "log", origin: ORIGIN };
  const { log } = await EventStore.open(options);
  for (let at = 0; at < 6_000; at += 2_000) {
    await log.append(entries(at, at + 2_000));
    const root = await log.tree().root();
    expect(Buffer.from(root)).toEqual(Buffer.from(naiveRoot(at + 2_000)));
  }
  await log.close();
});

it("append: a full segment has the hashes of all its entries, also of long ones", async () => {
  const options = { files: plainDisk(2), directory: "log", origin: ORIGIN, segmentEntries: 256 };
  const { log } = await EventStore.open(options);
  const long = Array.from({ length: 256 }, (_, at) => Buffer.alloc(2_000, at));
  await log.append(long);
  const frontier = new TreeFrontier();
  for (const entry of long) frontier.append(leafHash(entry));
  expect(Buffer.from(await log.tree().root())).toEqual(Buffer.from(frontier.root()));
  await log.close();
  const { log: again } = await EventStore.open(options);
  expect(Buffer.from(await again.tree().root())).toEqual(Buffer.from(frontier.root()));
  await again.close();
});
