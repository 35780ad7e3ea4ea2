import { z } from "zod";
import type { DataOf } from "../operation.ts";

/** The most parts of one request; the body's size bounds their text. */
const MAX_PARTS = 1024;
const ID = z.string().min(1).max(128);

const status = z.enum(["in_progress", "completed", "incomplete"]);
const inputText = z.object({ type: z.literal("input_text"), text: z.string() });
const refusal = z.object({ type: z.literal("refusal"), refusal: z.string() });
const reasoningText = z.object({ type: z.literal("reasoning_text"), text: z.string() });
const summaryText = z.object({ type: z.literal("summary_text"), text: z.string() });

const tokenScore = z.object({
  token: z.string(),
  logprob: z.number(),
  bytes: z.array(z.int()),
});
export const tokenScores = z.array(
  tokenScore.extend({ top_logprobs: z.array(tokenScore) }).meta({ id: "ResponseLogProb" }),
);

const outputText = z
  .object({
    type: z.literal("output_text"),
    text: z.string(),
    annotations: z.array(z.never()).describe("Always empty: no tool of this API cites."),
    logprobs: tokenScores,
  })
  .meta({ id: "ResponseOutputText" });

/** Parts that a request may have. */
const givenPart = z.discriminatedUnion("type", [
  inputText,
  refusal,
  z.object({ type: z.literal("output_text"), text: z.string() }),
]);

const given = { id: ID.nullish(), status: status.nullish() };

/** An item of a request's `input`. */
export const givenItem = z.discriminatedUnion("type", [
  z.object({
    ...given,
    type: z.literal("message").optional(),
    role: z.enum(["user", "assistant", "system", "developer"]),
    content: z.union([z.string(), z.array(givenPart).max(MAX_PARTS)]),
  }),
  z.object({
    ...given,
    type: z.literal("function_call"),
    call_id: ID,
    name: z.string().min(1).max(128),
    arguments: z.string(),
  }),
  z.object({
    ...given,
    type: z.literal("function_call_output"),
    call_id: ID,
    output: z.union([z.string(), z.array(inputText).max(MAX_PARTS)]),
  }),
  z.object({
    ...given,
    type: z.literal("reasoning"),
    summary: z.array(summaryText).max(MAX_PARTS).optional(),
    content: z.array(reasoningText).max(MAX_PARTS).nullish(),
    encrypted_content: z.null("encrypted reasoning is not supported; leave it out").optional(),
  }),
  z.object({ type: z.literal("item_reference"), id: ID }),
]);

export const ITEM_TYPES = [
  "message",
  "function_call",
  "function_call_output",
  "reasoning",
  "item_reference",
] as const;
export const PART_TYPES = ["input_text", "output_text", "refusal"] as const;

export type GivenItem = z.infer<typeof givenItem>;

/** A message of the caller, as the API shows it. */
const inputMessage = z
  .object({
    id: z.string(),
    type: z.literal("message"),
    role: z.enum(["user", "system", "developer"]),
    status,
    content: z.array(inputText.meta({ id: "ResponseInputText" })),
  })
  .meta({ id: "ResponseInputMessageItem" });

/** A message of the model, as the API shows it. */
const outputMessage = z
  .object({
    id: z.string(),
    type: z.literal("message"),
    role: z.literal("assistant"),
    status,
    content: z.array(z.union([outputText, refusal.meta({ id: "ResponseOutputRefusal" })])),
  })
  .meta({ id: "ResponseOutputMessage" });

const functionCall = z
  .object({
    id: z.string(),
    type: z.literal("function_call"),
    call_id: z.string(),
    name: z.string(),
    arguments: z.string(),
    status,
  })
  .meta({ id: "ResponseFunctionToolCallItem" });

const functionCallOutput = z
  .object({
    id: z.string(),
    type: z.literal("function_call_output"),
    call_id: z.string(),
    output: z.union([z.string(), z.array(inputText)]),
    status,
  })
  .meta({ id: "ResponseFunctionToolCallOutputItem" });

const reasoning = z
  .object({
    id: z.string(),
    type: z.literal("reasoning"),
    summary: z.array(summaryText),
    content: z.array(reasoningText),
    status,
  })
  .meta({ id: "ResponseReasoningItem" });

/** An item of a response's `output`. */
export const outputItem = z.union([outputMessage, functionCall, reasoning]);

/** An item of a response or of a conversation. */
export const item = z.union([
  inputMessage,
  outputMessage,
  functionCall,
  functionCallOutput,
  reasoning,
]);

export const contentPart = z.union([outputText, refusal, reasoningText]);

/** A page of items, in the cursor form of OpenAI's lists. */
export const itemList = z
  .object({
    object: z.literal("list"),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  })
  .meta({ id: "ResponseItemList" });

export type ResponseItem = DataOf<typeof item>;
export type OutputItem = DataOf<typeof outputItem>;
export type TokenScores = DataOf<typeof tokenScores>;
export type ItemList = DataOf<typeof itemList>;
