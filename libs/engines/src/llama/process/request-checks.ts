import { AppError } from "@heddle/base/errors";
import type {
  EmbedRequest,
  EngineInput,
  GenerateRequest,
  PairInput,
} from "@heddle/contracts/engine";
import type { AnswerStyle } from "../../grammar/answer-grammar.ts";
import type { ModelAbilities } from "../protocol/thread-messages.ts";

const MAX_CHOICES = 128;

function refuse(param: string, message: string): never {
  throw new AppError("invalid_value", `Invalid value for '${param}': ${message}.`, { param });
}

/** Throws where the model cannot do what is asked for. */
export function checkRequest(
  request: GenerateRequest | EmbedRequest,
  vocabularySize: number,
  abilities: ModelAbilities,
): void {
  if (request.kind === "embed") {
    checkKind(request, abilities);
    checkTokens(request.inputs, vocabularySize, (i) => `input[${i}]`);
    return;
  }
  if (!abilities.generates) refuse("model", "it gives embeddings only, and no text");
  checkTokens([request.input], vocabularySize, () => "prompt");
  checkText(request, vocabularySize);
  const { unrepeatable } = abilities;
  if (request.deterministic && unrepeatable !== undefined) refuse("deterministic", unrepeatable);
}

function checkKind({ inputs }: EmbedRequest, { embeds, ranks }: ModelAbilities): void {
  const hasPairs = inputs.some(({ kind }) => kind === "pair");
  if (hasPairs && !ranks) refuse("model", "it gives embeddings and ranks no documents");
  if (!hasPairs && !embeds) refuse("model", "it ranks documents and gives no embeddings");
}

/** Throws where an input has an id outside the vocabulary. */
export function checkTokens(
  inputs: readonly (EngineInput | PairInput)[],
  vocabularySize: number,
  paramOf: (input: number) => string,
): void {
  inputs.forEach((input, i) => {
    if (input.kind !== "tokens") return;
    if (!input.tokens.every((token) => isToken(token, vocabularySize))) {
      refuse(paramOf(i), unknownToken(vocabularySize));
    }
  });
}

function isToken(token: number, vocabularySize: number): boolean {
  return Number.isInteger(token) && token >= 0 && token < vocabularySize;
}

function unknownToken(vocabularySize: number): string {
  return `a token id is not in 0..${vocabularySize - 1}, this model's vocabulary`;
}

function checkText(
  { sampling, choices, maxTokens, sent }: GenerateRequest,
  vocabularySize: number,
): void {
  if (!sampling.logitBias.every(({ token }) => isToken(token, vocabularySize))) {
    refuse("logit_bias", unknownToken(vocabularySize));
  }
  if (!(choices >= 1 && choices <= MAX_CHOICES)) {
    refuse("n", `${choices} choices were asked for; 1 to ${MAX_CHOICES} are possible`);
  }
  if (maxTokens !== undefined && !(maxTokens >= 0)) {
    refuse("max_tokens", `${maxTokens} tokens were asked for; it cannot be negative`);
  }
  if (sent !== undefined && sent.length !== choices) {
    refuse("sent", `it has ${sent.length} choices, and ${choices} are asked for`);
  }
  for (const { tokens } of sent ?? []) {
    if (!tokens.every((token) => isToken(token, vocabularySize))) {
      refuse("sent", unknownToken(vocabularySize));
    }
  }
}

/** Throws where reasoning is asked for that the model has not; an effort of "none" is what it does. */
export function checkEffort(
  { input, reasoningTokens }: GenerateRequest,
  { reasoning, form }: AnswerStyle,
): void {
  const budget = reasoningTokens === undefined ? undefined : "thinking_token_budget";
  if (budget !== undefined && form.family === "harmony") {
    const message = `'${budget}' is not supported by this model, whose reasoning has efforts and no bound. Leave it out, or give an effort.`;
    throw new AppError("unsupported_parameter", message, { param: budget });
  }
  const effort = input.kind === "chat" ? input.effort : undefined;
  const param = effort !== undefined && effort !== "none" ? "reasoning_effort" : budget;
  if (param === undefined || reasoning !== undefined) return;
  const message = `Unsupported value for '${param}': this model does not reason. Leave it out, or choose a model that reasons.`;
  throw new AppError("unsupported_parameter", message, { param });
}
