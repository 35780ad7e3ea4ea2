// holds: events-tree

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { completeRoot, hashLeaves } from "./tree-hash.ts";

const sha256 = (...parts: readonly Uint8Array[]) => {
  const digest = createHash("sha256");
  for (const part of parts) digest.update(part);
  return digest.digest();
};
const leafOf = (entry: Uint8Array) => sha256(Buffer.of(0), entry);

/** Bytes that differ from entry to entry and from place to place. */
const entryOf = (length: number, seed: number) =>
  Buffer.from(Uint8Array.from({ length }, (_, at) => (at * 31 + seed * 17 + (at >> 8)) & 255));

function hashed(entries: readonly Uint8Array[], at = 0): Buffer {
  const target = Buffer.alloc(at + entries.length * 32, 0xee);
  hashLeaves(entries, target, at);
  return target;
}

test("leaves: hashes of each length are SHA-256, also of neighbours of other lengths", () => {
  const lengths = [...Array(300).keys(), 65_535, 0, 4_096, 1, 65_534, 2, 55, 63, 64, 119];
  for (const entries of [
    lengths.map(entryOf),
    lengths.toReversed().map(entryOf),
    [entryOf(9, 1)],
    [entryOf(70_000 % 65_536, 1), entryOf(5, 2)],
  ]) {
    expect(hashed(entries)).toEqual(Buffer.concat(entries.map(leafOf)));
  }
});

test("leaves: more than the memory has room for are hashed in order, from an offset on", () => {
  const many = Array.from({ length: 3_000 }, (_, at) => entryOf(at % 700, at));
  const large = Array.from({ length: 11 }, (_, at) => entryOf(65_535 - at, at));
  for (const entries of [many, large]) {
    const target = hashed(entries, 64);
    expect(target.subarray(0, 64)).toEqual(Buffer.alloc(64, 0xee));
    expect(target.subarray(64)).toEqual(Buffer.concat(entries.map(leafOf)));
  }
  expect(hashed([])).toEqual(Buffer.alloc(0));
});

test("root: of each power of two of hashes, which stay as they were", () => {
  const nodesOf = (hashes: readonly Uint8Array[]): readonly Uint8Array[] =>
    hashes.length === 1
      ? hashes
      : nodesOf(
          Array.from({ length: hashes.length / 2 }, (_, at) =>
            sha256(Buffer.of(1), hashes[2 * at]!, hashes[2 * at + 1]!),
          ),
        );
  for (let count = 1; count <= 1_024; count *= 2) {
    const hashes = Array.from({ length: count }, (_, at) => leafOf(entryOf(at, at)));
    const given = Buffer.concat(hashes);
    expect(Buffer.from(completeRoot(given))).toEqual(nodesOf(hashes)[0]);
    expect(given).toEqual(Buffer.concat(hashes));
  }
});
