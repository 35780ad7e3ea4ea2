import type { ReasoningStyle } from "@heddle/contracts/engine";

/** Around the reasoning of an answer. */
export const REASONING_TAGS = ["<think>", "</think>"] as const;

/**
 * How a chat template (jinja) makes its model mark reasoning; undefined where it has no `<think>`.
 * DeepSeek-R1's and QwQ's templates open the tag in the assistant's turn. A template that closes it
 * there too (Qwen3's, with thinking off) leaves the tag to the model.
 */
export function reasoningStyleOf(template: string): ReasoningStyle | undefined {
  // The reader of gpt-oss's channels gives them as such.
  if (["<|channel|>", "<|message|>", "analysis"].every((text) => template.includes(text))) {
    return "tagged";
  }
  if (!template.includes("<think>") && !template.includes("</think>")) return undefined;
  const turn = template.slice(template.lastIndexOf("add_generation_prompt"));
  const opens = turn !== template && turn.includes("<think>") && !turn.includes("</think>");
  return opens ? "open" : "tagged";
}
