// holds: engine-template

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writeTinyModel } from "../../gguf/tiny-model.ts";
import { TestSession } from "../testing/test-session.ts";

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "heddle-templates-"));
});
afterAll(() => rm(directory, { recursive: true }));

const LLAMA3 = {
  "<|im_start|>": "<|start_header_id|>",
  "<|im_end|>": "<|eot_id|>",
  "<pad>": "<|end_header_id|>",
};
const GEMMA = { "<|im_start|>": "<start_of_turn>", "<|im_end|>": "<end_of_turn>" };
const NO_FAMILY = { "<|im_start|>": "<mark>" };

describe("a file without a chat template", () => {
  it.each([
    ["chatml", {}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"],
    [
      "llama3",
      LLAMA3,
      "<|endoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ],
    ["gemma", GEMMA, "<|endoftext|><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"],
    ["plain", NO_FAMILY, "user: Hi\n\nassistant:"],
  ])("is asked in %s, which the engine reports", async (origin, controls, prompt) => {
    const path = join(directory, `${origin}.gguf`);
    await writeTinyModel(path, { chatTemplate: null, controls });
    const session = await TestSession.open({ maxSequences: 1 }, path);
    try {
      expect(session.engine.info.chatTemplate).toBe(origin);
      const text = await session.ask({ prompt, maxTokens: 4 });
      const chat = await session.ask({ prompt: [{ role: "user", content: "Hi" }], maxTokens: 4 });
      expect(chat.texts).toEqual(text.texts);
      // The same tokens: all but the last, which is computed again, are found in the cache.
      expect(chat.usage?.promptTokens).toBe(text.usage?.promptTokens);
      expect(chat.cachedTokens).toBe((text.usage?.promptTokens ?? 0) - 1);
    } finally {
      await session.close();
    }
  });
});

it("template origin: the engine reports a template of the file and one of the option", async () => {
  for (const [options, origin] of [
    [{}, "file"],
    [{ chatTemplate: "{{ messages[0].content }}" }, "option"],
  ] as const) {
    const session = await TestSession.open({ maxSequences: 1, ...options });
    expect(session.engine.info.chatTemplate).toBe(origin);
    await session.close();
  }
});
