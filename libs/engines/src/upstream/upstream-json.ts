import { isJsonObject } from "@heddle/base/json-object";
import type { Usage } from "@heddle/contracts/engine";
import { garbage } from "./upstream-fault.ts";

/** A text, or nothing. */
export function optionalText(value: unknown, what: string): string {
  if (value == null) return "";
  if (typeof value !== "string") throw garbage(`${what} that is not text`);
  return value;
}

/** Undefined where there is none. */
export function usageOf(value: unknown): Usage | undefined {
  if (value == null) return undefined;
  if (!isJsonObject(value)) throw garbage("a usage that is not an object");
  const prompt = value["prompt_tokens_details"];
  const completion = value["completion_tokens_details"];
  return {
    promptTokens: tokens(value["prompt_tokens"]),
    cachedTokens: isJsonObject(prompt) ? tokens(prompt["cached_tokens"]) : 0,
    completionTokens: tokens(value["completion_tokens"]),
    reasoningTokens: isJsonObject(completion) ? tokens(completion["reasoning_tokens"]) : 0,
  };
}

function tokens(value: unknown): number {
  if (value == null) return 0;
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw garbage(`an invalid count of tokens: ${JSON.stringify(value)}`);
  }
  return value as number;
}
