import { fileURLToPath } from "node:url";
import { loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";
import type { InferenceEvents } from "@heddle/contracts/generated/heddle/v1/InferenceEvents";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeEvents, encodeDeltas } from "./delta-frames.ts";

/** The general serializer, with the options of proto.ts. */
const message = loadSync(fileURLToPath(new URL("../../../proto/worker.proto", import.meta.url)), {
  keepCase: false,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
})["heddle.v1.InferenceEvents"] as MessageTypeDefinition<object, object>;
const general = {
  encode: (frame: InferenceEvents): Buffer => message.serialize(frame),
  decode: (bytes: Buffer): object => message.deserialize(bytes),
};

const uint32 = fc.oneof(fc.nat(200), fc.integer({ min: 0, max: 2 ** 32 - 1 }));
const delta = fc.record({
  choice: uint32,
  text: fc.oneof(fc.string({ unit: "grapheme" }), fc.constant("é".repeat(80))),
  tokens: uint32,
  tokenIds: fc.array(uint32, { maxLength: 4 }),
});
const plainFrame = fc.array(fc.record({ id: uint32, delta }), { minLength: 1, maxLength: 5 });

describe("delta frame: plain deltas", () => {
  test("are compatible with the general serializer in both directions", () => {
    fc.assert(
      fc.property(plainFrame, (events) => {
        const bytes = encodeDeltas({ events }) as Buffer;
        const expected = general.decode(general.encode({ events }));
        expect(general.decode(bytes)).toEqual(expected);
        expect(decodeEvents(bytes)).toEqual(expected);
        expect(decodeEvents(general.encode({ events }))).toEqual(expected);
      }),
      { numRuns: 300 },
    );
  });

  test("with a default field decode to that default", () => {
    // One event of id 5 whose delta has only text.
    const bytes = Buffer.from([10, 7, 8, 5, 26, 3, 18, 1, 97]);
    expect(decodeEvents(bytes)).toEqual(general.decode(bytes));
  });

  test("belong to the caller's own memory", () => {
    const first = encodeDeltas({ events: [{ id: 1, delta: { choice: 0, text: "a", tokens: 1 } }] });
    const copy = Buffer.from(first as Buffer);
    encodeDeltas({ events: [{ id: 2, delta: { choice: 1, text: "zzz", tokens: 2 } }] });
    expect(first).toEqual(copy);
  });
});

const started = fc.record({ promptTokens: uint32, cachedTokens: uint32, queuedMs: fc.double() });
const finish = fc.record(
  { choice: uint32, reason: fc.constantFrom("stop", "length"), stop: fc.string() },
  { requiredKeys: ["choice", "reason"] },
);
const done = fc.record({
  promptTokens: uint32,
  cachedTokens: uint32,
  completionTokens: uint32,
  reasoningTokens: uint32,
});
const event = fc.oneof(
  fc.record({ id: uint32, delta }),
  fc.record({ id: uint32, started }),
  fc.record({ id: uint32, finish }),
  fc.record({ id: uint32, done }),
);

test("delta frame: beginnings and ends are read as the general deserializer reads them", () => {
  fc.assert(
    fc.property(fc.array(event, { minLength: 1, maxLength: 5 }), (events) => {
      const bytes = general.encode({ events });
      expect(decodeEvents(bytes)).toEqual(general.decode(bytes));
    }),
    { numRuns: 300 },
  );
});

describe("delta frame: any other frame", () => {
  const score = { token: "a", utf8: Buffer.from("a"), logprob: -1, top: [] };
  const plain = { id: 1, delta: { choice: 0, text: "x", tokens: 1 } };
  const ends: InferenceEvents[] = [
    { events: [plain, { id: 2, finish: { choice: 0, reason: "stop" } }] },
    { events: [{ id: 2, started: { promptTokens: 3, cachedTokens: 1, queuedMs: 0.5 } }] },
    { events: [{ id: 2, done: { promptTokens: 3 } }, plain] },
  ];
  const others: InferenceEvents[] = [
    { events: [] },
    { events: [{ id: 2, delta: { choice: 0, text: "x", tokens: 1, logprobs: [score] } }] },
    { events: [plain, { id: 2, failed: { code: "cancelled", message: "x" } }] },
    { events: [plain], computed: [7] },
    { events: [{ id: 1, delta: { choice: 0, text: "x".repeat(30_000), tokens: 1 } }] },
  ];

  test("is left to the general serializer", () => {
    for (const frame of [...ends, ...others]) expect(encodeDeltas(frame)).toBeUndefined();
    for (const frame of others.slice(1, -1)) {
      expect(decodeEvents(general.encode(frame))).toBeUndefined();
    }
  });

  test("that is cut short is never decoded as a whole one", () => {
    const started = general.encode(ends[1] as InferenceEvents);
    for (let length = 1; length < started.length; length++) {
      expect(decodeEvents(started.subarray(0, length))).toBeUndefined();
    }
    const whole = encodeDeltas({ events: [plain, plain] }) as Buffer;
    const half = whole.length / 2;
    for (let length = 1; length < whole.length; length++) {
      const read = decodeEvents(whole.subarray(0, length));
      if (length === half) expect(read?.events).toHaveLength(1);
      else expect(read, `the first ${length} bytes`).toBeUndefined();
    }
  });

  test("of random bytes neither hangs nor throws", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        decodeEvents(bytes);
        decodeEvents(Uint8Array.of(10, bytes.length, ...bytes));
      }),
      { numRuns: 2_000 },
    );
  });
});
