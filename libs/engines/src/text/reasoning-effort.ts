import type { GenerateRequest, ReasoningEffort } from "@heddle/contracts/engine";

/** Tokens of reasoning where a template knows no efforts; without an entry there is no bound. */
const BUDGETS: Partial<Readonly<Record<ReasoningEffort, number>>> = {
  none: 0,
  minimal: 256,
  low: 1_024,
  medium: 4_096,
  high: 16_384,
};

/** The efforts that gpt-oss and its like were trained with. */
const TRAINED: Readonly<Record<ReasoningEffort, "low" | "medium" | "high">> = {
  none: "low",
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "high",
  max: "high",
};

/** What templates ask for: an effort as in gpt-oss, or whether to think as in Qwen3 and DeepSeek. */
export function effortVariables(effort: ReasoningEffort | undefined): Record<string, unknown> {
  if (effort === undefined) return {};
  const thinks = effort !== "none";
  return { reasoning_effort: TRAINED[effort], enable_thinking: thinks, thinking: thinks };
}

/** Tokens after which reasoning is ended; undefined for no bound. */
export function reasoningBudget(
  { input, reasoningTokens }: Pick<GenerateRequest, "input" | "reasoningTokens">,
  template: string,
): number | undefined {
  const effort = input.kind === "chat" ? input.effort : undefined;
  if (reasoningTokens !== undefined || effort === undefined) return reasoningTokens;
  return /\breasoning_effort\b/.test(template) ? undefined : BUDGETS[effort];
}
