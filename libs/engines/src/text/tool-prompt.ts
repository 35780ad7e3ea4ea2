import { createHash } from "node:crypto";
import type { ChatMessage, ToolCall, ToolDefinition } from "@heddle/contracts/engine";
import { type CallForm, type FormPart, HERMES } from "./call-form.ts";

/** A tool as templates print it with `tojson`. */
export function toolShape({ name, description = "", parameters }: ToolDefinition) {
  const schema: unknown = JSON.parse(parameters);
  return { type: "function", function: { name, description, parameters: schema } };
}

/**
 * The same conversation for a template that knows no tools, or another form of calls than the
 * engine's. The tools are in the system message, calls and their answers are texts, in the wording
 * of Hermes and Qwen, which many models have seen.
 */
export function withoutTools(
  messages: readonly ChatMessage[],
  tools: readonly ToolDefinition[],
  form: CallForm = HERMES,
): ChatMessage[] {
  const plain: ChatMessage[] = [];
  for (const message of messages) {
    const last = plain.at(-1);
    if (message.role !== "tool") plain.push(asText(message, form));
    else if (last?.role === "user" && isAnswer(last)) {
      plain[plain.length - 1] = { ...last, content: `${last.content}\n${answerText(message)}` };
    } else plain.push({ role: "user", content: answerText(message) });
  }
  return tools.length === 0 ? plain : withSystem(plain, promptOf(tools, form));
}

/** The same conversation for a template that writes calls and presents no tools. */
export function withToolPrompt(
  messages: readonly ChatMessage[],
  tools: readonly ToolDefinition[],
  form: CallForm,
): ChatMessage[] {
  return withSystem(messages, promptOf(tools, form));
}

/** The same where the template refuses a system message: its text comes before the first user's. */
export function withoutSystem(messages: readonly ChatMessage[]): ChatMessage[] {
  const [system, first, ...others] = messages;
  if (system === undefined || first === undefined) return [...messages];
  return [{ ...first, content: `${system.content}\n\n${first.content ?? ""}` }, ...others];
}

/** Calls in a form, with what a message says in them quoted. */
export function writtenCalls(
  form: CallForm,
  calls: readonly ToolCall[],
  quote: (text: string) => string,
): string {
  const texts = calls.map(
    ({ function: { name, arguments: text } }) =>
      `${form.before}${quote(name)}${plainest(form.middle)}${quote(text)}${plainest(form.after)}`,
  );
  return `${plainest(form.open)}${texts.join(form.between)}${form.close}`;
}

/** The form with the first of all alternatives. */
function plainest(parts: readonly FormPart[]): string {
  return parts
    .map((part) => {
      if (typeof part === "string") return part;
      return "anyOf" in part ? plainest(part.anyOf[0] ?? []) : "";
    })
    .join("");
}

/** The same conversation for a template that takes one call in a message: each is followed by its answer. */
export function oneCallEach(messages: readonly ChatMessage[]): ChatMessage[] {
  const single: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at] as ChatMessage;
    const { toolCalls = [] } = message;
    if (toolCalls.length < 2) {
      single.push(message);
      continue;
    }
    let end = at + 1;
    while (messages[end]?.role === "tool") end++;
    const answers = messages.slice(at + 1, end);
    toolCalls.forEach((call, i) => {
      const content = i === 0 ? message.content : null;
      const own = answers.filter(({ toolCallId }) => toolCallId === call.id);
      single.push({ ...message, content, toolCalls: [call] }, ...own);
    });
    const ids = new Set(toolCalls.map(({ id }) => id));
    single.push(...answers.filter(({ toolCallId = "" }) => !ids.has(toolCallId)));
    at = end - 1;
  }
  return single;
}

const SHORT_ID = /^[a-zA-Z0-9]{9}$/;

/** The id as nine letters and digits; equal for equal ids. */
export function shortId(id: string): string {
  if (SHORT_ID.test(id)) return id;
  return createHash("sha256").update(id).digest("hex").slice(0, 9);
}

function promptOf(tools: readonly ToolDefinition[], form: CallForm): string {
  const list = tools.map((tool) => JSON.stringify(toolShape(tool))).join("\n");
  return `# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
${list}
</tools>

${form.family === HERMES.family ? HERMES_WORDS : wordsOf(form)}`;
}

const HERMES_WORDS = `For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>`;

function wordsOf(form: CallForm): string {
  const call = `${form.before}<function-name>${plainest(form.middle)}<args-json-object>${plainest(form.after)}`;
  return `For function calls, write exactly:
${plainest(form.open)}${call}${form.close}`;
}

function withSystem(messages: readonly ChatMessage[], text: string): ChatMessage[] {
  const [first, ...others] = messages;
  if (first?.role !== "system" && first?.role !== "developer") {
    return [{ role: "system", content: text }, ...messages];
  }
  return [{ ...first, content: `${first.content ?? ""}\n\n${text}` }, ...others];
}

function asText({ toolCalls = [], ...message }: ChatMessage, form: CallForm): ChatMessage {
  if (toolCalls.length === 0) return message;
  const calls = writtenCalls(form, toolCalls, (text) => text);
  const before = message.content === null || message.content === "" ? [] : [message.content];
  return { ...message, content: [...before, calls].join("\n") };
}

const ANSWER_OPEN = "<tool_response>\n";

function answerText({ content }: ChatMessage): string {
  return `${ANSWER_OPEN}${content ?? ""}\n</tool_response>`;
}

function isAnswer({ content }: ChatMessage): boolean {
  return content?.startsWith(ANSWER_OPEN) === true;
}
