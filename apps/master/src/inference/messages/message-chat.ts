import { AppError, toAppError } from "@heddle/base/errors";
import type { ChatCompletionRequest, ChatRequestMessage } from "@heddle/contracts/api/chat";
import type {
  MessagesPrompt,
  MessagesRequest,
  RequestMessage,
} from "@heddle/contracts/api/inference/messages-request";

/** The chat request whose prompt and answer are those of the messages. */
export function toChatRequest(request: MessagesRequest): ChatCompletionRequest {
  const { max_tokens, temperature, top_p, top_k, stop_sequences, output_config } = request;
  const schema = output_config?.format?.schema;
  return {
    ...toPrompt(request),
    max_tokens,
    temperature,
    top_p,
    top_k,
    stop: stop_sequences,
    thinking_token_budget: request.thinking?.budget_tokens,
    ...(schema && {
      response_format: { type: "json_schema", json_schema: { name: "output", schema } },
    }),
  };
}

/** The effort that is asked for, or what thinking that is on or off comes to. */
function effortOf({
  thinking,
  output_config: config,
}: MessagesPrompt & Pick<Partial<MessagesRequest>, "output_config">) {
  if (thinking?.type === "disabled") return "none";
  return config?.effort ?? (thinking?.type === "enabled" ? "xhigh" : undefined);
}

/** The part of it that makes the prompt. */
export function toPrompt(request: MessagesPrompt): ChatCompletionRequest {
  const { model, messages, system, tools, tool_choice: choice } = request;
  const isParallel = choice == null || choice.type === "none" || !choice.disable_parallel_tool_use;
  return {
    model,
    messages: [
      ...(system ? [{ role: "system" as const, content: textOf(system) }] : []),
      ...joinedTurns(messages).flatMap(toChatMessages),
    ],
    tools: tools?.map(({ name, description, input_schema: parameters }) => ({
      type: "function" as const,
      function: { name, description, parameters },
    })),
    tool_choice: choice == null ? undefined : toolChoiceOf(choice),
    parallel_tool_calls: isParallel,
    reasoning_effort: effortOf(request),
  };
}

function toolChoiceOf(
  choice: NonNullable<MessagesPrompt["tool_choice"]>,
): ChatCompletionRequest["tool_choice"] {
  if (choice.type === "any") return "required";
  if (choice.type !== "tool") return choice.type;
  return { type: "function", function: { name: choice.name } };
}

type Block = Exclude<RequestMessage["content"], string>[number];

interface Turn {
  readonly role: RequestMessage["role"];
  readonly blocks: Block[];
}

/** Neighbours of one role are one turn, as Anthropic has it: many chat templates ask for it. */
function joinedTurns(messages: readonly RequestMessage[]): Turn[] {
  const turns: Turn[] = [];
  for (const { role, content } of messages) {
    const blocks =
      typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
    const last = turns.at(-1);
    if (last?.role === role) last.blocks.push(...blocks);
    else turns.push({ role, blocks: [...blocks] });
  }
  return turns;
}

/** A user's turn is the results of tools, each a message of its own, and the text between them. */
function toChatMessages({ role, blocks }: Turn): ChatRequestMessage[] {
  if (role === "assistant") return [toAssistantMessage(blocks)];
  const messages: ChatRequestMessage[] = [];
  let texts: { type: "text"; text: string }[] = [];
  const endText = () => {
    if (texts.length > 0) messages.push({ role, content: texts });
    texts = [];
  };
  for (const block of blocks) {
    if (block.type === "text") texts.push(block);
    if (block.type !== "tool_result") continue;
    endText();
    const text = textOf(block.content ?? "");
    const content = block.is_error ? `Error: ${text}` : text;
    messages.push({ role: "tool", tool_call_id: block.tool_use_id, content });
  }
  endText();
  return messages;
}

/** Earlier thinking is left out, as chat templates leave it out. */
function toAssistantMessage(blocks: readonly Block[]): ChatRequestMessage {
  const texts = blocks.flatMap((block) => (block.type === "text" ? [block] : []));
  const calls = blocks.flatMap((block) => (block.type === "tool_use" ? [block] : []));
  return {
    role: "assistant",
    content: texts.length > 0 ? texts : calls.length > 0 ? null : "",
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id, name, input }) => ({
        id,
        type: "function" as const,
        function: { name, arguments: JSON.stringify(input) },
      })),
    }),
  };
}

function textOf(content: string | readonly { readonly text: string }[]): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join("\n");
}

/** The names of what a chat and a message call differently. */
const PARAMS: readonly (readonly [chat: RegExp, message: string])[] = [
  [/^tools\[(\d+)\]\.function\.parameters/, "tools[$1].input_schema"],
  [/^response_format\.json_schema\.schema/, "output_config.format.schema"],
  [/^stop$/, "stop_sequences"],
  [/^reasoning_effort$/, "thinking"],
  [/^thinking_token_budget$/, "thinking.budget_tokens"],
];

/** The error of a chat as that of the message that it was made of. */
export function asMessageError(thrown: unknown): AppError {
  const error = toAppError(thrown);
  const { code, message, param, retryAfterMs, node, model } = error;
  const found = PARAMS.find(([chat]) => param !== undefined && chat.test(param));
  if (param === undefined || found === undefined) return error;
  const own = param.replace(...found);
  const text = message.replaceAll(param, own);
  return new AppError(code, text, { param: own, retryAfterMs, node, model, cause: error });
}
