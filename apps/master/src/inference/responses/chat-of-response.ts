import { AppError } from "@heddle/base/errors";
import type { ChatCompletionRequest, ChatRequestMessage } from "@heddle/contracts/api/chat";
import type { GivenItem, ResponseItem } from "@heddle/contracts/api/responses/items";
import type { ResponseRequest, TokenCountRequest } from "@heddle/contracts/api/responses/request";
import { checkFormat, checkTools } from "@heddle/contracts/chat-constraints";
import type { GenerationFields } from "../chat/chat-request.ts";

type PromptFields = Pick<
  TokenCountRequest,
  "model" | "instructions" | "tools" | "tool_choice" | "parallel_tool_calls" | "text" | "reasoning"
>;

/** The chat that asks for the same as the prompt of a response. Throws for tools that cannot be. */
export function chatOfPrompt(
  request: PromptFields,
  items: readonly ResponseItem[],
): ChatCompletionRequest {
  const { model, instructions, tools, parallel_tool_calls } = request;
  const first: ChatRequestMessage[] =
    instructions == null ? [] : [{ role: "system", content: instructions }];
  const chat: ChatCompletionRequest = {
    model,
    messages: [...first, ...messagesOf(items)],
    tools: tools?.map(({ type, name, description, parameters }) => ({
      type,
      function: { name, description, parameters },
    })),
    tool_choice: toolChoiceOf(request.tool_choice),
    parallel_tool_calls,
    response_format: formatOf(request.text),
    reasoning_effort: request.reasoning?.effort,
  };
  return inResponseTerms(() => {
    if (chat.response_format != null) checkFormat(chat.response_format);
    checkTools(chat);
    return chat;
  });
}

/** The chat that asks for the same as the response. */
export function chatOfResponse(
  request: ResponseRequest,
  items: readonly ResponseItem[],
): ChatCompletionRequest {
  const { input, include, max_output_tokens, top_logprobs, ...rest } = request;
  const hasScores = include?.includes("message.output_text.logprobs") === true;
  return {
    ...samplingOf(rest),
    ...chatOfPrompt(request, items),
    max_completion_tokens: max_output_tokens,
    logprobs: hasScores,
    top_logprobs: hasScores ? top_logprobs : undefined,
  };
}

function samplingOf(request: Omit<ResponseRequest, "input" | "include">) {
  const { temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty } = request;
  const { frequency_penalty, seed, logit_bias, min_tokens, ignore_eos, stop } = request;
  const { deterministic, thinking_token_budget } = request;
  return {
    temperature,
    top_p,
    top_k,
    min_p,
    repetition_penalty,
    presence_penalty,
    frequency_penalty,
    seed,
    logit_bias,
    min_tokens,
    ignore_eos,
    deterministic,
    thinking_token_budget,
    stop,
  } satisfies Record<Exclude<keyof GenerationFields, "n"> | "thinking_token_budget", unknown>;
}

function toolChoiceOf(choice: PromptFields["tool_choice"]): ChatCompletionRequest["tool_choice"] {
  if (choice == null || typeof choice === "string") return choice;
  if (choice.type === "function") return { type: "function", function: { name: choice.name } };
  const tools = choice.tools.map(({ type, name }) => ({ type, function: { name } }));
  return { type: "allowed_tools", allowed_tools: { mode: choice.mode, tools } };
}

function formatOf(text: PromptFields["text"]): ChatCompletionRequest["response_format"] {
  const format = text?.format;
  if (format?.type !== "json_schema") return format;
  const { name, description, schema, strict } = format;
  return { type: "json_schema", json_schema: { name, description, schema, strict } };
}

/**
 * Calls that follow each other are of one message, with the text before them. Reasoning is left
 * out, as chat templates do it.
 */
function messagesOf(items: readonly ResponseItem[]): ChatRequestMessage[] {
  const messages: ChatRequestMessage[] = [];
  for (const item of items) {
    if (item.type === "message") messages.push(messageOf(item));
    else if (item.type === "function_call_output") {
      const content = typeof item.output === "string" ? item.output : textsOf(item.output);
      messages.push({ role: "tool", content, tool_call_id: item.call_id });
    } else if (item.type === "function_call") addCall(messages, item);
  }
  return messages;
}

function messageOf(item: ResponseItem & { readonly type: "message" }): ChatRequestMessage {
  if (item.role !== "assistant") return { role: item.role, content: textsOf(item.content) };
  const content = item.content.map((part) =>
    part.type === "output_text" ? { type: "text" as const, text: part.text } : { ...part },
  );
  return { role: "assistant", content: content.length > 0 ? content : "" };
}

function addCall(
  messages: ChatRequestMessage[],
  { call_id, name, arguments: text }: ResponseItem & { readonly type: "function_call" },
): void {
  const call = { id: call_id, type: "function" as const, function: { name, arguments: text } };
  const last = messages.at(-1);
  if (last?.role !== "assistant") {
    messages.push({ role: "assistant", content: null, tool_calls: [call] });
  } else if (last.tool_calls) last.tool_calls.push(call);
  else messages[messages.length - 1] = { ...last, tool_calls: [call] };
}

function textsOf(parts: readonly { readonly text: string }[]): string {
  return parts.map(({ text }) => text).join("\n");
}

/** The items of a request in the form in which they are kept and shown, with ids. */
export function itemsWithIds(
  items: readonly GivenItem[],
  idOf: (prefix: string, index: number) => string,
): ResponseItem[] {
  return items.flatMap((item, index): ResponseItem[] => {
    const status = "completed" as const;
    switch (item.type) {
      case "function_call": {
        const { call_id, name, arguments: text } = item;
        const id = item.id ?? idOf("fc", index);
        return [{ id, type: item.type, call_id, name, arguments: text, status }];
      }
      case "function_call_output": {
        const id = item.id ?? idOf("fco", index);
        return [{ id, type: item.type, call_id: item.call_id, output: item.output, status }];
      }
      case "reasoning": {
        const { summary = [], content } = item;
        const id = item.id ?? idOf("rs", index);
        return [{ id, type: item.type, summary, content: content ?? [], status }];
      }
      case "item_reference":
        return [];
      default:
        return [messageWithId(item, item.id ?? idOf("msg", index))];
    }
  });
}

type GivenMessage = Extract<GivenItem, { readonly role: string }>;

function messageWithId({ role, content }: GivenMessage, id: string): ResponseItem {
  const head = { id, type: "message", status: "completed" } as const;
  const parts =
    typeof content === "string" ? [{ type: "input_text" as const, text: content }] : content;
  if (role === "assistant") {
    const spoken = parts.map((part) =>
      part.type === "refusal"
        ? part
        : { type: "output_text" as const, text: part.text, annotations: [], logprobs: [] },
    );
    return { ...head, role, content: spoken };
  }
  const texts = parts.map((part) => ({
    type: "input_text" as const,
    text: part.type === "refusal" ? part.refusal : part.text,
  }));
  return { ...head, role, content: texts };
}

/** Throws where an output answers a call that is not before it. */
export function checkCallIds(items: readonly ResponseItem[], given: number): void {
  const calls = new Set<string>();
  items.forEach((item, at) => {
    if (item.type === "function_call") calls.add(item.call_id);
    if (item.type !== "function_call_output" || calls.has(item.call_id)) return;
    const param = `input[${at - (items.length - given)}].call_id`;
    const message = `Invalid value for '${param}': no function_call before it has the call_id ${item.call_id}.`;
    throw new AppError("invalid_value", message, { param });
  });
}

/** How the parts of a chat are called in a response. */
const TERMS: readonly (readonly [RegExp, string])[] = [
  [/\bmessages\b(\[\d+\](\.\w+)?)?/, "input"],
  [/\breasoning_effort\b/, "reasoning.effort"],
  [/\bmax_completion_tokens\b/, "max_output_tokens"],
  [/\bresponse_format\.json_schema\b/, "text.format"],
  [/\bresponse_format\b/, "text.format"],
  [/\btool_choice\.allowed_tools\.tools\b/, "tool_choice.tools"],
  [/\b(tools\[\d+\]|tool_choice)\.function\b/, "$1"],
];

/** Runs the code, whose errors name parts of a chat. */
export function inResponseTerms<T>(run: () => T): T {
  try {
    return run();
  } catch (thrown) {
    throw renamed(thrown);
  }
}

/** The error with the names that the parts have in a response. */
export function renamed(thrown: unknown): unknown {
  if (!(thrown instanceof AppError) || thrown.param === undefined) return thrown;
  const param = termOf(thrown.param);
  if (param === thrown.param) return thrown;
  const { code, retryAfterMs, node, model, cause } = thrown;
  const message = thrown.message.replaceAll(thrown.param, param);
  return new AppError(code, message, { param, retryAfterMs, node, model, cause });
}

function termOf(param: string): string {
  return TERMS.reduce((text, [chat, response]) => text.replace(chat, response), param);
}
