import type { EngineEvent } from "@heddle/contracts/engine";
import { describe, expect, it } from "vitest";
import type { ChildEvents, ChildLoad } from "./child-protocol.ts";
import { EventFrameReader, EventFrameWriter } from "./event-frames.ts";

const load: ChildLoad = {
  running: 1,
  waiting: 2,
  maxSequences: 16,
  maxQueued: 256,
  kvUsedTokens: 900,
  kvTokens: 32_768,
  promptTokens: 2 ** 41,
  cachedTokens: 7,
  generatedTokens: 2 ** 35 + 3,
  draftTokens: 2 ** 34 + 5,
  acceptedTokens: 77,
  residentBytes: 5e9,
};
const usage = { promptTokens: 1, cachedTokens: 0, completionTokens: 2, reasoningTokens: 0 };
const delta = (id: number, text: string): EngineEvent => ({
  type: "delta",
  id,
  choice: id % 5,
  text,
  tokens: 1 + (id % 3),
  ...(id % 2 === 1 && { tokenIds: [id, 2 ** 31 - 1] }),
});
const scored: EngineEvent = {
  type: "delta",
  id: 4,
  choice: 0,
  text: "a",
  tokens: 1,
  logprobs: [{ token: "a", bytes: [97], logprob: -0.5, top: [] }],
};
const steps: readonly (readonly EngineEvent[])[] = [
  [delta(1, " the"), delta(2 ** 32 - 1, "🙂é\u0000")],
  [],
  [{ type: "started", id: 3, promptTokens: 9, cachedTokens: 2, queuedMs: 0.25 }, delta(3, "x")],
  [delta(3, ""), delta(4, "y")],
  [delta(6, "cut"), { ...delta(6, "."), isCut: true } as EngineEvent],
  [scored, { type: "finish", id: 3, choice: 0, reason: "stop" }, { type: "done", id: 3, usage }],
  [{ type: "failed", id: 4, error: { code: "cancelled", message: "no" } }],
  [delta(5, "ü".repeat(100_000))],
];

function written(): Buffer {
  const writer = new EventFrameWriter();
  return Buffer.concat(steps.map((events) => Buffer.from(writer.frame(events, load))));
}

function read(chunks: Iterable<Buffer>): ChildEvents[] {
  const got: ChildEvents[] = [];
  const reader = new EventFrameReader((message) => got.push(message));
  for (const chunk of chunks) reader.push(chunk);
  return got;
}

describe("frames of events", () => {
  const expected = steps.map((events) => ({ events, load }));

  it("bring every kind of event and the load as they were", () => {
    expect(read([written()])).toEqual(expected);
  });

  it("may be cut anywhere on their way", () => {
    const bytes = written();
    for (const size of [1, 3, 7, 64, 4_096]) {
      const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
        bytes.subarray(i * size, (i + 1) * size),
      );
      expect(read(chunks)).toEqual(expected);
    }
  });

  it("that are malformed are refused", () => {
    expect(() => read([Buffer.alloc(16, 0xff)])).toThrow(/bytes was received/);
    expect(() => read([Buffer.from([1, 0, 0, 0, 9])])).toThrow(/unknown kind 9/);
  });
});
