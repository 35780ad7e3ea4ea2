import { describe, expect, it } from "vitest";
import { StepRing, stepRingMemory } from "./step-ring.ts";
import type { ThreadLoad } from "./thread-messages.ts";

const load: ThreadLoad = {
  running: 3,
  waiting: 1,
  kvUsedTokens: 77,
  promptTokens: 2 ** 40,
  cachedTokens: 5,
  generatedTokens: 2 ** 33 + 1,
  draftTokens: 2 ** 32 + 7,
  acceptedTokens: 9,
};

function tokensOf(count: number, first: number) {
  return {
    handles: Int32Array.from({ length: count }, (_, i) => first + i),
    tokens: Int32Array.from({ length: count }, (_, i) => 2 * (first + i)),
    ends: Uint8Array.from({ length: count }, (_, i) => (first + i) % 3),
  };
}

function write(ring: StepRing, count: number, first: number): number | undefined {
  const { handles, tokens, ends } = tokensOf(count, first);
  return ring.write(count, handles, tokens, ends, load);
}

describe("a ring of steps", () => {
  it("gives what was written, over many turns of the ring and with a reader that lags", () => {
    const memory = stepRingMemory();
    const [writer, reader] = [new StepRing(memory), new StepRing(memory)];
    const posted: { begin: number; count: number; first: number }[] = [];
    for (let step = 0; step < 5_000; step++) {
      const count = 1 + ((step * 37) % 300);
      const begin = write(writer, count, step) as number;
      expect(begin).toBeDefined();
      posted.push({ begin, count, first: step });
      if (posted.length < 5) continue;
      const next = posted.shift() as (typeof posted)[number];
      expect(reader.read(next.begin)).toEqual({
        kind: "step",
        ...tokensOf(next.count, next.first),
        logprobs: undefined,
        started: [],
        load,
      });
    }
  });

  it("that is full takes nothing until something was read, and loses nothing", () => {
    const memory = stepRingMemory();
    const [writer, reader] = [new StepRing(memory), new StepRing(memory)];
    const begins: number[] = [];
    for (let begin = write(writer, 100, 0); begin !== undefined; ) {
      begins.push(begin);
      begin = write(writer, 100, begins.length);
    }
    expect(begins.length).toBeGreaterThan(10);
    expect(write(writer, 100, 1)).toBeUndefined();
    begins.forEach((begin, first) => {
      expect(reader.read(begin).handles[0]).toBe(first);
    });
    const again = write(writer, 100, 9) as number;
    expect(reader.read(again).handles[0]).toBe(9);
  });
});
