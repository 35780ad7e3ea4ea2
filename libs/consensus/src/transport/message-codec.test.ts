// holds: consensus-transport

import { createMessage, type MessageInit } from "@heddle/raft/core/message";
import { expect, test } from "vitest";
import { decodeMessages, encodeMessage, messageBytes } from "./message-codec.ts";

const bytes = (text: string) => new Uint8Array(Buffer.from(text));

const samples: readonly MessageInit[] = [
  {
    type: "MsgApp",
    to: 2,
    from: 1,
    term: 3,
    logTerm: 2,
    index: 2 ** 53 - 1,
    commit: 7,
    entries: [
      { type: "EntryNormal", term: 3, index: 8, data: bytes("a command") },
      { type: "EntryConfChangeV2", term: 3, index: 9, data: new Uint8Array(0) },
    ],
  },
  { type: "MsgAppResp", to: 1, from: 2, term: 3, index: 5, reject: true, rejectHint: 4 },
  { type: "MsgHeartbeat", to: 2, from: 1, term: 3, context: bytes("01234567") },
];

function encode(): Buffer {
  const messages = samples.map((sample) => createMessage(sample));
  const size = messages.reduce((sum, message) => sum + messageBytes(message), 0);
  const buffer = Buffer.alloc(size, 0xee);
  let at = 0;
  for (const message of messages) at = encodeMessage(message, buffer, at);
  expect(at).toBe(size);
  return buffer;
}

test("message codec: messages survive a round trip", () => {
  const decoded = decodeMessages(encode());
  expect(decoded).toHaveLength(samples.length);
  for (const [at, sample] of samples.entries()) {
    const { entries, context, ...rest } = createMessage(sample);
    expect(decoded[at]).toMatchObject(rest);
    expect(Buffer.from(decoded[at]?.context ?? [])).toEqual(Buffer.from(context));
    const plain = decoded[at]?.entries.map((entry) => ({ ...entry, data: [...entry.data] }));
    expect(plain).toEqual(entries.map((entry) => ({ ...entry, data: [...entry.data] })));
  }
});

test("message codec: bytes that are truncated or of an unknown kind are refused", () => {
  const whole = encode();
  const ends = new Set([0]);
  let at = 0;
  for (const sample of samples) {
    at += messageBytes(createMessage(sample));
    ends.add(at);
  }
  for (let length = 1; length < whole.length; length++) {
    if (ends.has(length)) continue;
    expect(() => decodeMessages(whole.subarray(0, length)), `at ${length}`).toThrow(RangeError);
  }
  whole[0] = 200;
  expect(() => decodeMessages(whole)).toThrow(/unknown type/);
});

test("message codec: a message for its own node only is not encoded", () => {
  const local = createMessage({ type: "MsgHup", to: 1 });
  expect(() => encodeMessage(local, Buffer.alloc(100), 0)).toThrow(/must not leave/);
});
