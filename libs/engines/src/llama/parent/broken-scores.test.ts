// holds: engine-nan

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import koffi from "koffi";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { BatchLoop } from "../engine-thread/batch-loop.ts";
import { type LoadedModel, loadModel } from "../engine-thread/model.ts";
import { StepRing, stepRingMemory } from "../protocol/step-ring.ts";
import { NO_GRAMMAR, type ThreadStep, type ThreadSubmit } from "../protocol/thread-messages.ts";

let folder = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-broken-"));
  await writeTinyModel(join(folder, "tiny.gguf"));
});
afterAll(() => rm(folder, { recursive: true }));

function submit(firstHandle: number, prompt: Int32Array): ThreadSubmit {
  return {
    kind: "submit",
    firstHandle,
    choices: 1,
    prompt,
    maxTokens: 4,
    minTokens: 0,
    sampling: {
      temperature: 0,
      topP: 1,
      topK: 0,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      seed: 1,
      biasTokens: new Int32Array(0),
      biasValues: new Float32Array(0),
    },
    topLogprobs: -1,
    scoresPrompt: false,
    grammar: NO_GRAMMAR,
    isDeterministic: false,
    fairKey: "k",
    cacheSalt: "",
    priority: 0,
  };
}

/** A model whose next scores can be made no numbers, as by a fault of memory. */
function poisonable(model: LoadedModel, poison: { after: number }): LoadedModel {
  const { llama, context, vocabularySize } = model;
  const decode: typeof model.decode = (batch) => {
    const answer = model.decode(batch);
    if (poison.after-- === 0) {
      const scores = koffi.view(llama.get_logits(context), vocabularySize * 4);
      new Float32Array(scores).fill(Number.NaN);
    }
    return answer;
  };
  return { ...model, decode };
}

describe("scores that are no numbers for once", () => {
  it("keep no prefix of the call for others", () => {
    const { model } = loadModel({
      modelPath: join(folder, "tiny.gguf"),
      device: "cpu",
      gpuLayers: 0,
      threads: 1,
      maxSequences: 4,
      prefillBudgetTokens: 64,
      contextTokens: 512,
      kvTokens: 2048,
      wake: new SharedArrayBuffer(4),
      steps: stepRingMemory(),
    });
    const poison = { after: -1 };
    const loop = new BatchLoop(poisonable(model, poison), new StepRing(stepRingMemory()), () => 0);
    const prompt = Int32Array.from({ length: 40 }, (_, at) => 10 + at);
    /** Cached tokens of the prompt that the call finds. */
    const run = (handle: number): number => {
      loop.command(submit(handle, prompt), 0);
      let cached = -1;
      while (!loop.isIdle) {
        const step = loop.step(0);
        if (typeof step !== "object") continue;
        cached = (step as ThreadStep).started[0]?.cachedTokens ?? cached;
      }
      return cached;
    };
    expect(run(1)).toBe(0);
    expect(run(2)).toBeGreaterThan(0);
    // The prompt's last part, and then a token of the answer.
    for (const [at, after] of [0, 2].entries()) {
      poison.after = after;
      run(10 + 2 * at);
      expect(run(11 + 2 * at)).toBe(0);
    }
  });
});
