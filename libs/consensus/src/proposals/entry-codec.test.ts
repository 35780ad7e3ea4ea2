import { WAL_KINDS } from "@heddle/storage/wal-record";
import { expect, test } from "vitest";
import { commandOf, encodeProposal, entriesOfRecords, sequenceOf, uint32 } from "./entry-codec.ts";

const ID = { node: 2 ** 32 - 1, incarnation: 258, sequence: 2 ** 52 + 1 };

test("proposal: who made it and its command come back as they were", () => {
  const data = encodeProposal(ID, Buffer.from("abc"));
  expect(Buffer.from(commandOf(data) ?? []).toString()).toBe("abc");
  expect(sequenceOf(data, ID)).toBe(ID.sequence);
});

test("proposal: another member's, or of another start, is not one's own", () => {
  const data = encodeProposal(ID, new Uint8Array(0));
  expect(sequenceOf(data, { ...ID, node: 1 })).toBeUndefined();
  expect(sequenceOf(data, { ...ID, incarnation: 2 })).toBeUndefined();
});

test("proposal: an empty command is one, and shorter data is none", () => {
  expect(commandOf(encodeProposal(ID, new Uint8Array(0)))).toHaveLength(0);
  expect(commandOf(new Uint8Array(15))).toBeUndefined();
});

test("proposal: a number of 32 bits is read from any offset", () => {
  const bytes = Uint8Array.from([9, 0x01, 0x80, 0x00, 0xff]);
  expect(uint32(bytes, 1)).toBe(0xff008001);
});

const record = (index: number, payload: Uint8Array) => {
  return { kind: WAL_KINDS.entry, term: 3, index, payload };
};

test("entries: each has its type and data of its own, also where pieces are full", () => {
  const sizes = [0, 1, 200_000, 100_000, 300_000, 262_144, 1];
  const payloads = sizes.map((size, i) => Uint8Array.from([i % 3, ...Buffer.alloc(size, i + 1)]));
  const entries = entriesOfRecords(payloads.map((payload, i) => record(i + 10, payload)));
  for (const payload of payloads) payload.fill(0);
  const types = ["EntryNormal", "EntryConfChange", "EntryConfChangeV2"];
  for (const [i, { term, index, type, data }] of entries.entries()) {
    expect([term, index, type, data.length]).toEqual([3, i + 10, types[i % 3], sizes[i]]);
    expect(data.every((byte) => byte === i + 1)).toBe(true);
  }
});

test("entries: small ones share a piece of memory", () => {
  const records = [1, 2].map((index) => record(index, new Uint8Array(101)));
  const [first, second] = entriesOfRecords(records);
  expect(first?.data.buffer).toBe(second?.data.buffer);
});

test("entries: a type that is not known is refused, with its place", () => {
  const unknown = record(12, Uint8Array.from([3, 0]));
  expect(() => entriesOfRecords([unknown])).toThrow(/entry 12 .* unknown type 3/);
});
