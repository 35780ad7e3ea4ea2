import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { Batch } from "../engine-thread/batch.ts";
import { type LoadedModel, loadModel } from "../engine-thread/model.ts";
import { OutputRows } from "../engine-thread/output-rows.ts";
import { stepRingMemory } from "../protocol/step-ring.ts";
import type { KvSlots } from "./slot-kv-cache.ts";
import { streamSlots } from "./stream-copy.ts";

const SLOTS = 4;

describe("copies between slots of a real cache", () => {
  let directory: string;
  let model: LoadedModel;
  let slots: KvSlots;
  let batch: Batch;
  let rows: OutputRows;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "heddle-copy-"));
    const modelPath = join(directory, "tiny.gguf");
    await writeTinyModel(modelPath);
    const wake = new SharedArrayBuffer(4);
    const start = { modelPath, device: "cpu", gpuLayers: 0, threads: 1, prefillBudgetTokens: 64 };
    ({ model } = loadModel({
      ...start,
      contextTokens: 256,
      maxSequences: SLOTS,
      wake,
      steps: stepRingMemory(),
    }));
    slots = streamSlots(model.llama, model.context);
    batch = new Batch(model.batchTokens, SLOTS);
    rows = new OutputRows(model.vocabularySize, SLOTS);
  });
  afterAll(() => {
    model.llama.free(model.context);
    return rm(directory, { recursive: true });
  });

  /** Computes the tokens at positions from `from` on; gives the logits after the last. */
  function compute(slot: number, tokens: readonly number[], from = 0): number[] {
    batch.clear();
    tokens.forEach((token, i) => {
      batch.add(token, from + i, slot, i === tokens.length - 1);
    });
    expect(model.llama.decode(model.context, batch.struct)).toBe(0);
    rows.point(model.llama.get_logits(model.context));
    return [...rows.row(0)];
  }

  const prompt = (number: number) => Array.from({ length: 40 }, (_, i) => 10 + ((i * number) % 90));

  it("gives the copy the logits of the original, to the bit", () => {
    compute(0, prompt(7));
    const expected = compute(0, [42], 40);
    slots.copy(0, 2, 40, 41);
    expect(compute(2, [42], 40)).toEqual(expected);
    slots.copy(0, 3, 25, 41);
    compute(3, prompt(7).slice(25), 25);
    const rest = compute(3, [42], 40);
    rest.forEach((logit, i) => {
      expect(logit).toBeCloseTo(expected[i] as number, 3);
    });
  });

  it("exchanges two slots, also with an empty one", () => {
    for (const slot of [0, 1, 2, 3]) slots.truncate(slot, 0);
    compute(0, prompt(7));
    const first = compute(0, [42], 40);
    compute(1, prompt(11));
    const second = compute(1, [42], 40);
    expect(second).not.toEqual(first);
    for (const slot of [0, 1]) slots.truncate(slot, 40);
    slots.swap(0, 1);
    expect(compute(1, [42], 40)).toEqual(first);
    expect(compute(0, [42], 40)).toEqual(second);
    slots.truncate(1, 40);
    slots.swap(1, 3);
    expect(compute(3, [42], 40)).toEqual(first);
    // The slot that was empty takes a prompt from its first position again.
    compute(1, prompt(7));
    expect(compute(1, [42], 40)).toEqual(first);
  });
});
