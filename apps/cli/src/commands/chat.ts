import { text as readAll } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import type { ChatRequest } from "@heddle/client/resources/inference/chat";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../command-context.ts";
import {
  type ChatResult,
  describeSpeed,
  streamChat,
  tokensPerSecond,
} from "../http/chat-stream.ts";
import { defaultModel, listModels } from "../http/model-list.ts";
import { watchInterrupts } from "../interrupt.ts";
import { isRecordFormat, printRecord } from "../output/rows.ts";
import { reportError } from "../report-error.ts";
import { TurnReader } from "../turn-reader.ts";

interface ChatFlags {
  readonly model?: string;
  readonly system?: string;
  readonly maxTokens?: string;
  readonly temperature?: string;
}

type ChatSettings = Pick<ChatRequest, "model" | "max_tokens" | "temperature">;
type ChatTurn = ChatRequest["messages"][number];

/** `heddle chat [prompt]`: one answer; a conversation if there is no prompt and a terminal. */
export async function chat(command: Command): Promise<number> {
  const context = commandContext(command);
  const flags = command.opts<ChatFlags>();
  const limits = {
    max_tokens: numberFlag("--max-tokens", flags.maxTokens, 1, 1_000_000, true),
    temperature: numberFlag("--temperature", flags.temperature, 0, 2, false),
  };
  const turns: ChatTurn[] = flags.system ? [{ role: "system", content: flags.system }] : [];
  const prompt = command.args[0];
  const converses = prompt === undefined && process.stdin.isTTY;
  const question = converses ? undefined : await readQuestion(prompt);
  const settings = { model: flags.model ?? (await chooseModel(context)), ...limits };
  if (question === undefined) return await converse(context, settings, turns);
  await answer(context, settings, [...turns, { role: "user", content: question }]);
  return 0;
}

async function readQuestion(prompt: string | undefined): Promise<string> {
  const isPiped = prompt === undefined || prompt === "-";
  const question = (isPiped ? await readAll(process.stdin) : prompt).trim();
  if (question !== "") return question;
  const source = isPiped ? "standard input" : "the prompt";
  const fix = 'Give one, as in: heddle chat "What is a loom?"';
  throw new AppError("invalid_value", `The prompt is missing: ${source} is empty. ${fix}`);
}

async function chooseModel({ heddle, connection }: CommandContext): Promise<string> {
  const model = defaultModel(await listModels(heddle));
  if (model) return model.id;
  throw new AppError("model_not_found", `${connection.endpoint} serves no model.`);
}

/**
 * Streams one answer to standard output and its speed to standard error; JSON and YAML at the end.
 */
async function answer(
  context: CommandContext,
  settings: ChatSettings,
  messages: readonly ChatTurn[],
): Promise<string> {
  const interrupts = watchInterrupts();
  const { data, format, messages: out } = context;
  const isRecord = isRecordFormat(format);
  try {
    const request: ChatRequest = { ...settings, messages };
    const write = (text: string) => isRecord || data.writeForeign(text);
    const result = await streamChat(context.heddle, request, write, interrupts.signal);
    if (isRecord) {
      printRecord(answerRecord(settings.model, result), "", format, data);
      return result.text;
    }
    data.write("\n");
    const cut = result.finishReason === "length" ? ", cut at the token limit" : "";
    out.write(`${out.paint("dim", describeSpeed(result) + cut)}\n`);
    return result.text;
  } finally {
    interrupts.release();
  }
}

/** An answer as one record; null for counts that the cluster did not send. */
function answerRecord(model: string, result: ChatResult) {
  return {
    model,
    content: result.text,
    finish_reason: result.finishReason ?? null,
    usage: result.usage ?? null,
    ttft_ms: result.firstTokenMs,
    tokens_per_second: tokensPerSecond(result) ?? null,
  };
}

const COMMANDS = ["/help", "/?", "/clear", "/exit"] as const;
const HELP = `/help   show this help (or /?)
/clear  clear the conversation
/exit   exit (or Ctrl-D)
//TEXT  send /TEXT to the model
Up recalls earlier lines. Pasted lines are one prompt; Enter sends it. Ctrl-C stops an answer.
`;

/**
 * A conversation: an empty turn is skipped, Ctrl-D or /exit ends it, and Ctrl-C stops an answer.
 */
async function converse(
  context: CommandContext,
  settings: ChatSettings,
  system: readonly ChatTurn[],
): Promise<number> {
  const { messages: out } = context;
  out.write(`${out.paint("dim", `chatting with ${settings.model}; type /help for commands`)}\n`);
  const reader = new TurnReader();
  let turns = [...system];
  for (;;) {
    try {
      const turn = readTurn((await reader.next()) ?? "/exit");
      if (turn.command === "/exit") return 0;
      if (turn.command === "/clear") {
        turns = [...system];
        out.write("conversation cleared\n");
      } else if (turn.command !== undefined) out.write(HELP);
      else if (turn.text !== "") turns = await exchange(context, settings, turns, turn.text);
    } catch (error) {
      // A failed turn is removed from the conversation, which continues.
      reportError(error);
    }
  }
}

interface Turn {
  readonly command?: (typeof COMMANDS)[number];
  /** For the model; empty if the turn is a command. */
  readonly text: string;
}

/**
 * A line that begins with a slash and a word is a command; paths and texts of several lines are
 * not. Throws `invalid_value` with the known commands for an unknown word.
 */
function readTurn(typed: string): Turn {
  const line = typed.trim();
  if (line.includes("\n")) return { text: typed };
  if (line.startsWith("//")) return { text: line.slice(1) };
  const [word = ""] = line.split(/\s+/);
  if (!/^\/[\p{L}\d?_-]*$/u.test(word)) return { text: line };
  const command = COMMANDS.find((known) => known === line.toLowerCase());
  if (command) return { command, text: "" };
  const fault = COMMANDS.some((known) => known === word.toLowerCase())
    ? `${word} takes no arguments`
    : `unknown command ${word}`;
  throw new AppError("invalid_value", `${fault}. The commands:\n${HELP.trimEnd()}`);
}

async function exchange(
  context: CommandContext,
  settings: ChatSettings,
  turns: readonly ChatTurn[],
  question: string,
): Promise<ChatTurn[]> {
  const asked = [...turns, { role: "user", content: question } as const];
  return [...asked, { role: "assistant", content: await answer(context, settings, asked) }];
}

function numberFlag(
  flag: string,
  text: string | undefined,
  least: number,
  most: number,
  whole: boolean,
): number | undefined {
  if (text === undefined) return undefined;
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (value >= least && value <= most && (!whole || Number.isInteger(value))) return value;
  const kind = whole ? "a whole number" : "a number";
  throw new AppError("invalid_value", `${flag} "${text}": give ${kind} from ${least} to ${most}.`);
}
