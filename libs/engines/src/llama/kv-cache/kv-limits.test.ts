import { describe, expect, it } from "vitest";
import { chooseKvLimits, type KvFacts } from "./kv-limits.ts";

const GIB = 2 ** 30;

/** SmolLM2-135M on a laptop: 30 layers, 3 heads of 64, keys and values of two bytes. */
const LAPTOP: KvFacts = {
  trainedTokens: 8192,
  bytesPerToken: 23_040,
  freeBytes: 16 * GIB,
  onCpu: true,
  canShare: true,
};

describe("chooseKvLimits", () => {
  it("gives a CPU slots of a whole context within 1.5 GiB", () => {
    const limits = chooseKvLimits(LAPTOP, { contextTokens: 8192 });
    expect(limits).toMatchObject({ layout: "slots", contextTokens: 8192, maxSequences: 8 });
    expect(limits.kvTokens * LAPTOP.bytesPerToken).toBeLessThanOrEqual(1.5 * GIB);
  });

  it("gives fewer slots where memory is short, and one pool where too few are left", () => {
    const wishes = { contextTokens: 8192 };
    expect(chooseKvLimits({ ...LAPTOP, freeBytes: 4 * GIB }, wishes).maxSequences).toBe(5);
    const pool = chooseKvLimits({ ...LAPTOP, freeBytes: 2 * GIB }, wishes);
    expect(pool).toMatchObject({ layout: "unified", maxSequences: 16, contextTokens: 8192 });
  });

  it("gives the sequences and tokens that are asked for", () => {
    const asked = { contextTokens: 2048, kvTokens: 32_768, maxSequences: 16 };
    expect(chooseKvLimits(LAPTOP, asked)).toMatchObject({ layout: "slots", ...asked });
    const one = chooseKvLimits(LAPTOP, { contextTokens: 1000, maxSequences: 1 });
    expect(one).toMatchObject({ layout: "slots", kvTokens: 1024, contextTokens: 1000 });
  });

  it("shares one pool where the asked sequences have no context each", () => {
    const asked = { contextTokens: 512, kvTokens: 1024, maxSequences: 4 };
    expect(chooseKvLimits(LAPTOP, asked)).toMatchObject({ layout: "unified", ...asked });
    const large = chooseKvLimits(LAPTOP, { maxSequences: 64 });
    expect(large).toMatchObject({ layout: "unified", maxSequences: 64 });
  });

  it("gives one pool to a GPU and to a model that cannot share", () => {
    expect(chooseKvLimits({ ...LAPTOP, onCpu: false }, {}).layout).toBe("unified");
    expect(chooseKvLimits({ ...LAPTOP, canShare: false }, {}).layout).toBe("unified");
  });

  it("lets idle prefixes keep a GPU's pool, and little of a CPU's", () => {
    const wishes = { contextTokens: 8192, kvTokens: 16_384 };
    const gpu = chooseKvLimits({ ...LAPTOP, onCpu: false }, wishes);
    expect(gpu.retainedTokens).toBe(16_384);
    const cpu = chooseKvLimits({ ...LAPTOP, canShare: false }, wishes);
    expect(cpu.retainedTokens).toBe(256);
  });

  it("gives slots to deterministic answers on every device, or says why not", () => {
    const wishes = { contextTokens: 8192, needsSlots: true };
    expect(chooseKvLimits({ ...LAPTOP, onCpu: false }, wishes).layout).toBe("slots");
    const short = { ...LAPTOP, freeBytes: GIB };
    expect(chooseKvLimits(short, wishes)).toMatchObject({ layout: "slots", maxSequences: 1 });
    const refused = (facts: KvFacts) => () => chooseKvLimits(facts, wishes);
    expect(refused({ ...LAPTOP, freeBytes: 1e8 })).toThrow(/slots of 8192.*lower contextTokens/);
    expect(refused({ ...LAPTOP, canShare: false })).toThrow(/cannot be cut.*set it to `request`/);
  });

  it("refuses a cache that has no room for the context that is asked for", () => {
    expect(() => chooseKvLimits(LAPTOP, { contextTokens: 4096, kvTokens: 1024 })).toThrow(
      /kvTokens is 1024.*4096 tokens.*raise kvTokens or lower contextTokens/,
    );
  });

  it("makes the context fit the cache where only that is asked for", () => {
    const limits = chooseKvLimits(LAPTOP, { kvTokens: 1024 });
    expect(limits).toMatchObject({ contextTokens: 1024, kvTokens: 1024 });
  });
});
