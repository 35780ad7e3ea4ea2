// holds: events-tree

import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TreeFrontier } from "./frontier.ts";
import { leafHash, writeLeafHashes } from "./hash.ts";
import { TileTree } from "./proofs.ts";
import { type ReadTile, TILE_WIDTH, type Tile } from "./tile.ts";
import { bundlePath, parseTilePath, tilePath, tilesOf } from "./tile-path.ts";
import { subtreesOf } from "./tree-shape.ts";
import { isConsistent, isIncluded } from "./verify-proof.ts";

const sha256 = (...parts: Uint8Array[]) => {
  const digest = createHash("sha256");
  for (const part of parts) digest.update(part);
  return digest.digest();
};

/** RFC 6962, section 2.1, word for word. */
function naiveRoot(leaves: readonly Uint8Array[]): Buffer {
  if (leaves.length === 0) return sha256();
  if (leaves.length === 1) return sha256(Buffer.of(0), leaves[0]!);
  const k = largestPowerBelow(leaves.length);
  return sha256(Buffer.of(1), naiveRoot(leaves.slice(0, k)), naiveRoot(leaves.slice(k)));
}

function largestPowerBelow(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/** PATH(m, D[n]) of section 2.1.1. */
function naivePath(m: number, leaves: readonly Uint8Array[]): Buffer[] {
  if (leaves.length === 1) return [];
  const k = largestPowerBelow(leaves.length);
  const [left, right] = [leaves.slice(0, k), leaves.slice(k)];
  if (m < k) return [...naivePath(m, left), naiveRoot(right)];
  return [...naivePath(m - k, right), naiveRoot(left)];
}

/** SUBPROOF(m, D[n], b) of section 2.1.2. */
function naiveSubproof(m: number, leaves: readonly Uint8Array[], b: boolean): Buffer[] {
  if (m === leaves.length) return b ? [] : [naiveRoot(leaves)];
  const k = largestPowerBelow(leaves.length);
  const [left, right] = [leaves.slice(0, k), leaves.slice(k)];
  if (m <= k) return [...naiveSubproof(m, left, b), naiveRoot(right)];
  return [...naiveSubproof(m - k, right, false), naiveRoot(left)];
}

const entries = (count: number) => Array.from({ length: count }, (_, at) => Buffer.from(`e${at}`));

/** Tiles in memory, built leaf by leaf. */
class Tiles {
  readonly frontier = new TreeFrontier();
  readonly read: Tile[] = [];
  readonly #levels: Uint8Array[][] = [];

  constructor(all: readonly Uint8Array[]) {
    for (const entry of all) {
      this.frontier.append(leafHash(entry), (level, hash) => {
        this.#levels[level] ??= [];
        this.#levels[level].push(hash);
      });
    }
  }

  readonly readTile: ReadTile = async (tile) => {
    this.read.push(tile);
    const from = tile.index * TILE_WIDTH;
    return Buffer.concat((this.#levels[tile.level] ?? []).slice(from, from + tile.width));
  };
}

const bytesOf = (hashes: readonly Uint8Array[]) => hashes.map((hash) => Buffer.from(hash));
const flipped = (hash: Uint8Array) =>
  Buffer.from(hash.map((byte, at) => (at === 7 ? ~byte : byte)));

describe("the tree of RFC 6962", () => {
  it("root: has the hashes of the published test tree", async () => {
    const leaves = [
      "",
      "00",
      "10",
      "2021",
      "3031",
      "40414243",
      "5051525354555657",
      "606162636465666768696a6b6c6d6e6f",
    ].map((hex) => Buffer.from(hex, "hex"));
    const roots = [0, 1, 2, 3, 5, 8].map((size) => {
      const { frontier } = new Tiles(leaves.slice(0, size));
      return Buffer.from(frontier.root()).toString("hex");
    });
    expect(roots).toEqual([
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
      "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
      "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
      "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]);
  });

  it("leaf: an entry longer than the scratch buffer has its hash", () => {
    for (const size of [0, 4_095, 4_096, 65_535]) {
      const entry = Buffer.alloc(size, 3);
      expect(Buffer.from(leafHash(entry))).toEqual(sha256(Buffer.of(0), entry));
    }
  });

  it("leaves: short and long ones beside each other each have their hash, in order", () => {
    const sizes = [600, 3, 511, 512, 0, 9, 70, 513, 65_535, 1, 2, 3, 4, 5, 5_000];
    const leaves = sizes.map((size, at) => Buffer.alloc(size, at + 1));
    const target = Buffer.alloc(32 * (leaves.length + 2), 0xee);
    writeLeafHashes(leaves, target, 32);
    const expected = leaves.map((leaf) => sha256(Buffer.of(0), leaf));
    const around = Buffer.alloc(32, 0xee);
    expect(target).toEqual(Buffer.concat([around, ...expected, around]));
  });

  it("proofs: those of every leaf and prefix are the naive ones, and verify", async () => {
    for (const size of [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 33]) {
      const all = entries(size);
      const tree = new TileTree(size, new Tiles(all).readTile);
      const root = await tree.root();
      expect(Buffer.from(root)).toEqual(naiveRoot(all));
      for (let at = 0; at < size; at++) {
        const proof = await tree.inclusionProof(at);
        expect(bytesOf(proof)).toEqual(naivePath(at, all));
        expect(isIncluded(leafHash(all[at]!), at, { size, root }, proof)).toBe(true);
        const consistency = await tree.consistencyProof(at + 1);
        expect(bytesOf(consistency)).toEqual(naiveSubproof(at + 1, all, true));
        const old = { size: at + 1, root: naiveRoot(all.slice(0, at + 1)) };
        expect(isConsistent(old, { size, root }, consistency)).toBe(true);
      }
    }
  });
});

describe("proofs over several levels of tiles", () => {
  const sizes = fc.oneof(
    fc.integer({ min: 1, max: 70_000 }),
    fc.constantFrom(255, 256, 257, 65_535, 65_536, 65_537),
  );
  const all = entries(70_000);
  const tiles = new Tiles(all);

  it("inclusion: each verifies, and fails for any other leaf, index, size or hash", async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(), fc.nat(), async (size, where, which) => {
        const index = where % size;
        const tree = new TileTree(size, tiles.readTile);
        const [root, proof] = [await tree.root(), await tree.inclusionProof(index)];
        const leaf = leafHash(all[index]!);
        expect(isIncluded(leaf, index, { size, root }, proof)).toBe(true);
        const other = (index + 1) % size;
        expect(isIncluded(leaf, other, { size, root }, proof)).toBe(size === 1);
        expect(isIncluded(flipped(leaf), index, { size, root }, proof)).toBe(false);
        expect(isIncluded(leaf, index, { size, root: flipped(root) }, proof)).toBe(false);
        expect(isIncluded(leaf, index, { size, root }, [...proof, root])).toBe(false);
        if (proof.length === 0) return;
        const at = which % proof.length;
        expect(isIncluded(leaf, index, { size, root }, proof.toSpliced(at, 1))).toBe(false);
        const changed = proof.with(at, flipped(proof[at]!));
        expect(isIncluded(leaf, index, { size, root }, changed)).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it("consistency: each verifies, and fails for another root, size or hash", async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(), fc.nat(), async (size, where, which) => {
        const tree = new TileTree(size, tiles.readTile);
        const old = new TileTree(1 + (where % size), tiles.readTile);
        const from = { size: old.size, root: await old.root() };
        const to = { size, root: await tree.root() };
        const proof = await tree.consistencyProof(from.size);
        expect(isConsistent(from, to, proof)).toBe(true);
        expect(isConsistent({ ...from, root: flipped(from.root) }, to, proof)).toBe(false);
        expect(isConsistent(from, { ...to, root: flipped(to.root) }, proof)).toBe(false);
        expect(isConsistent(from, to, [...proof, to.root])).toBe(false);
        if (from.size === size) return;
        expect(isConsistent({ size: 0, root: from.root }, to, proof)).toBe(false);
        expect(isConsistent(from, { ...to, size: from.size }, proof)).toBe(false);
        const at = which % proof.length;
        expect(isConsistent(from, to, proof.toSpliced(at, 1))).toBe(false);
        expect(isConsistent(from, to, proof.with(at, flipped(proof[at]!)))).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it("frontier: its root is the tree's, also when continued from subtrees of any range", async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(), fc.nat(), async (size, one, two) => {
        const tree = new TileTree(size, tiles.readTile);
        const [begin = 0, end = 0] = [one % (size + 1), two % (size + 1)].sort((a, b) => a - b);
        const stop = Math.min(end, begin + 300);
        const frontier = new TreeFrontier(begin, await tree.subtreeRoots({ begin: 0, end: begin }));
        for (const entry of all.slice(begin, stop)) frontier.append(leafHash(entry));
        const right = { begin: stop, end: size };
        const roots = await tree.subtreeRoots(right);
        for (const [at, { height }] of subtreesOf(right).entries()) {
          frontier.appendSubtree(height, roots[at]!);
        }
        expect(Buffer.from(frontier.root())).toEqual(Buffer.from(await tree.root()));
      }),
      { numRuns: 100 },
    );
  });

  it("tiles: a proof reads each tile once, and at most two a level", async () => {
    const own = new Tiles(all.slice(0, 66_000));
    await new TileTree(66_000, own.readTile).inclusionProof(65_700);
    const names = own.read.map(({ level, index }) => `${level}/${index}`);
    expect(new Set(names).size).toBe(names.length);
    expect(names.length).toBeGreaterThan(2);
    for (const level of [0, 1, 2]) {
      expect(own.read.filter((tile) => tile.level === level).length).toBeLessThanOrEqual(2);
    }
  });

  it("tiles: one that is too short is refused by its name", async () => {
    const short: ReadTile = async (tile) => (await tiles.readTile(tile)).subarray(32);
    await expect(new TileTree(300, short).root()).rejects.toThrow(
      /tile 0 of level 1 has 0 bytes, not 32|tile 1 of level 0 has 1376 bytes, not 1408/,
    );
  });
});

describe("the tiles of tlog-tiles", () => {
  it("path: has the form of the specification", () => {
    const paths = [
      tilePath({ level: 0, index: 0, width: 256 }),
      tilePath({ level: 63, index: 1_234_067, width: 5 }),
      tilePath({ level: 2, index: 999, width: 1 }),
      tilePath({ level: 2, index: 1_000, width: 255 }),
      bundlePath({ index: 1_234_067, width: 256 }),
    ];
    expect(paths).toEqual([
      "tile/0/000",
      "tile/63/x001/x234/067.p/5",
      "tile/2/999.p/1",
      "tile/2/x001/000.p/255",
      "tile/entries/x001/x234/067",
    ]);
  });

  it("path: each tile has one, and others are none", () => {
    for (const tile of tilesOf(70_000)) {
      expect(parseTilePath(tilePath(tile))).toEqual({ tile, isBundle: false });
    }
    const tile = { level: 0, index: 1_234_067, width: 5 };
    expect(parseTilePath(bundlePath(tile))).toEqual({ tile, isBundle: true });
    const others = ["0", "x000/000", "001/002", "x001/x002", "000.p/0", "000.p/256", "000.p/05"];
    for (const other of [...others, "000/", "000.p/", "x001/000.p/5/", "../000"]) {
      expect(parseTilePath(`tile/0/${other}`), other).toBeUndefined();
      expect(parseTilePath(`tile/entries/${other}`), other).toBeUndefined();
    }
    for (const level of ["00", "-1", "100", "x", "ENTRIES"]) {
      expect(parseTilePath(`tile/${level}/000`), level).toBeUndefined();
    }
  });

  it("tree: one of 70,000 entries has the tiles of the specification's example", () => {
    const widths = [...tilesOf(70_000)].map(({ level, width }) => `${level}:${width}`);
    const counts = Map.groupBy(widths, (each) => each);
    expect([...counts].map(([each, found]) => [each, found.length])).toEqual([
      ["0:256", 273],
      ["0:112", 1],
      ["1:256", 1],
      ["1:17", 1],
      ["2:1", 1],
    ]);
    expect([...tilesOf(256)].map(({ level, width }) => [level, width])).toEqual([
      [0, 256],
      [1, 1],
    ]);
    expect([...tilesOf(0)]).toEqual([]);
  });
});

describe("proofs of large trees", () => {
  // A tree of equal leaves has one hash a height, so trees of any size have proofs.
  const perfect = [leafHash(Buffer.from("x"))];
  while (perfect.length < 60) {
    perfect.push(sha256(Buffer.of(1), perfect.at(-1)!, perfect.at(-1)!));
  }
  const full = Array.from({ length: 8 }, (_, level) =>
    Buffer.concat(Array.from({ length: TILE_WIDTH }, () => perfect[level * 8]!)),
  );
  const readTile: ReadTile = async ({ level, width }) => full[level]!.subarray(0, width * 32);

  it("verify for sizes up to 2^53 - 1", async () => {
    await fc.assert(
      fc.asyncProperty(fc.maxSafeNat(), fc.maxSafeNat(), async (one, two) => {
        const size = Math.max(one, two, 1);
        const tree = new TileTree(size, readTile);
        const to = { size, root: await tree.root() };
        const index = Math.min(one, two) % size;
        const proof = await tree.inclusionProof(index);
        expect(isIncluded(perfect[0]!, index, to, proof)).toBe(true);
        const old = new TileTree(index + 1, readTile);
        const from = { size: index + 1, root: await old.root() };
        expect(isConsistent(from, to, await tree.consistencyProof(from.size))).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it("are refused for what is no tree: fractions, negative numbers, endless proofs", () => {
    const to = { size: 4, root: perfect[2]! };
    const proof = [perfect[0]!, perfect[1]!];
    expect(isIncluded(perfect[0]!, 1, to, proof)).toBe(true);
    for (const index of [-1, 0.5, 4, Number.NaN]) {
      expect(isIncluded(perfect[0]!, index, to, proof)).toBe(false);
    }
    expect(isIncluded(perfect[0]!, 1, { ...to, size: 2 ** 53 }, proof)).toBe(false);
    expect(isIncluded(perfect[0]!, 1, to, [proof[0]!, proof[1]!.subarray(1)])).toBe(false);
    expect(isIncluded(perfect[0]!, 1, to, Array(10_000).fill(perfect[0]!))).toBe(false);
    expect(isConsistent({ size: 5, root: perfect[2]! }, to, [])).toBe(false);
    expect(isConsistent({ size: 0, root: sha256() }, to, [])).toBe(true);
    expect(isConsistent({ size: 0, root: perfect[0]! }, to, [])).toBe(false);
  });
});
