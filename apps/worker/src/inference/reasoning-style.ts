import type { ReasoningStyle } from "@heddle/contracts/engine";

/**
 * How a chat template (jinja) has its model mark reasoning; undefined where it knows no `<think>`.
 * A template that opens the tag itself does so in what it adds for the assistant's turn, as
 * DeepSeek-R1's and QwQ's do; one that closes it there too (Qwen3's, where thinking is switched off)
 * leaves the tag to the model.
 */
export function reasoningStyleOf(template: string): ReasoningStyle | undefined {
  if (!template.includes("<think>") && !template.includes("</think>")) return undefined;
  const turn = template.slice(template.lastIndexOf("add_generation_prompt"));
  const opens = turn !== template && turn.includes("<think>") && !turn.includes("</think>");
  return opens ? "open" : "tagged";
}
