// holds: api-long-prompt-others

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineInput } from "@heddle/contracts/engine";
import { afterAll, beforeAll, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { CHATML_TEMPLATE } from "../../text/template-choice.ts";
import { type LoadedModel, loadModel } from "../engine-thread/model.ts";
import { stepRingMemory } from "../protocol/step-ring.ts";
import { LongPrompts } from "./long-prompts.ts";

let directory: string;
let model: LoadedModel;
let prompts: LongPrompts;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-long-"));
  const modelPath = join(directory, "tiny.gguf");
  await writeTinyModel(modelPath);
  const loading = loadModel({
    modelPath,
    device: "cpu",
    gpuLayers: 0,
    threads: 1,
    prefillBudgetTokens: 32,
    contextTokens: 64,
    maxSequences: 1,
    wake: new SharedArrayBuffer(4),
    steps: stepRingMemory(),
  });
  model = loading.model;
  const refusal = "{% if messages[0].role == 'assistant' %}{{ raise_exception('no') }}{% endif %}";
  const chatTemplate = `${refusal}${CHATML_TEMPLATE}`;
  const rules = { table: loading.table, chatTemplate, contextTokens: 1_000_000 };
  const onFatal = (error: unknown) => {
    throw error;
  };
  prompts = new LongPrompts({ device: "cpu", rules }, onFatal);
});
afterAll(async () => {
  await prompts.close();
  model.llama.free(model.context);
  await rm(directory, { recursive: true });
});

const generation = (input: EngineInput) => ({ input, use: "generate" }) as const;
const text = (times: number): EngineInput => ({ kind: "text", text: "the rain ".repeat(times) });

it("long prompts: those of many characters in any field, and those of many messages", () => {
  expect(LongPrompts.areLong([text(100)])).toBe(false);
  expect(LongPrompts.areLong([text(1_000)])).toBe(true);
  const content = "x".repeat(9_000);
  const call = { id: "c", type: "function", function: { name: "f", arguments: content } } as const;
  for (const messages of [
    [{ role: "user", content }],
    [{ role: "user", content: "", name: content }],
    [{ role: "assistant", content: null, toolCalls: [call] }],
    Array.from({ length: 200 }, () => ({ role: "user", content: "" }) as const),
  ] as const) {
    expect(LongPrompts.areLong([{ kind: "chat", messages }])).toBe(true);
  }
});

it("long prompts: keys take turns, and a cancelled one is not read", async () => {
  const order: string[] = [];
  const read = (name: string, fairKey: string, times: number) => {
    const reading = prompts.read(generation(text(times)), { fairKey, priority: 0 });
    const done = reading.tokens.then((tokens) => {
      order.push(name);
      return tokens.length;
    });
    return { done, cancel: reading.cancel };
  };
  const greedy = [1, 2, 3, 4].map((i) => read(`greedy ${i}`, "greedy", 20_000));
  const modest = read("modest", "modest", 1_000);
  greedy[3]?.cancel();
  const counts = await Promise.all([...greedy.slice(0, 3), modest].map(({ done }) => done));
  expect(order).toEqual(["greedy 1", "modest", "greedy 2", "greedy 3"]);
  expect(counts[0]).toBeGreaterThan(60_000);
  expect(counts[3]).toBeLessThan(10_000);
});

it("long prompts: an unreadable one fails with the reason, and the next is read", async () => {
  const long = "x".repeat(9_000);
  const refused = prompts.read(
    generation({
      kind: "chat",
      messages: [{ role: "assistant", content: long }],
    }),
    { fairKey: "a", priority: 0 },
  );
  await expect(refused.tokens).rejects.toMatchObject({
    code: "invalid_value",
    param: "messages",
  });
  const { tokens } = prompts.read(generation(text(1_000)), { fairKey: "a", priority: 0 });
  expect((await tokens).length).toBeGreaterThan(3_000);
});
