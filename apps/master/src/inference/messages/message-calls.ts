import type { AppError } from "@heddle/base/errors";
import type { ChatCompletionRequest } from "@heddle/contracts/api/chat";
import type { MessageEvent } from "@heddle/contracts/api/inference/messages";
import {
  type MessagesRequest,
  parseCountTokensRequest,
  parseMessagesRequest,
} from "@heddle/contracts/api/inference/messages-request";
import type { ReasoningStyle } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { messagesErrorBody } from "../../http/error-reply.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { askedTokens, choiceCalls } from "../chat/chat-completions.ts";
import { estimatePromptTokens, toChatInput, toGenerateRequest } from "../chat/chat-request.ts";
import { ChoiceSplitter } from "../chat/choice-splitter.ts";
import { mayHoldText } from "../chat/reasoning.ts";
import type { InferenceAnswer } from "../dispatch/inference-port.ts";
import {
  cutShort,
  errorEvent,
  fingerprintOf,
  InferenceCalls,
  type PermittedCall,
  type StreamFormat,
} from "../inference-calls.ts";
import type { ReadingCall } from "../tokens/token-calls.ts";
import { asMessageError, toChatRequest, toPrompt } from "./message-chat.ts";
import { MessageCollector, MessageWriter } from "./message-writer.ts";

const PING = 'event: ping\ndata: {"type":"ping"}\n\n';
const FORMAT: StreamFormat = {
  end: "",
  heartbeat: PING,
  failure: (error, requestId) => errorEvent(messagesErrorBody(error, requestId)),
};

interface Prepared extends PermittedCall {
  readonly request: MessagesRequest;
  readonly chat: ChatCompletionRequest;
  readonly maxTokens: number | undefined;
  readonly reasoning: ReasoningStyle | undefined;
}

/** POST /messages: the call of a chat, in the words of Anthropic's API. */
export class MessageCalls {
  readonly #calls: InferenceCalls;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply),
      (prepared, signal) => this.#run(http, reply, prepared, signal),
    );
  }

  async #prepare(http: CallerRequest, reply: FastifyReply): Promise<Prepared> {
    const { models } = this.#calls.parts;
    const request = parseMessagesRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const chat = toChatRequest(request);
    const promptTokens = estimatePromptTokens(chat);
    const maxTokens = askedTokens(request, model, models);
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: request.max_tokens,
      endUser: request.metadata?.user_id ?? undefined,
    });
    const headers = { ...permitted.headers, "request-id": http.id };
    const reasoning = models.reasoningStyle(model);
    return { ...permitted, headers, request, chat, maxTokens, reasoning };
  }

  async #run(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const { request, chat, maxTokens, reasoning } = prepared;
    const mayHold = mayHoldText(request.stream === true, reasoning);
    const work = { request: toGenerateRequest(chat, maxTokens), mayHold };
    const starting = this.#calls.start(http, prepared, work, signal);
    if (request.stream !== true) {
      const collector = new MessageCollector();
      for await (const event of messageEvents(prepared, starting)) collector.take(event);
      this.#calls.send(http, reply, prepared, JSON.stringify(collector.message));
      return undefined;
    }
    return this.#calls.stream(
      http,
      reply,
      prepared,
      signal,
      async (stream) => {
        for await (const event of messageEvents(prepared, starting)) {
          if (stream.write(eventText(event))) continue;
          await stream.drained();
          signal.throwIfAborted();
        }
        return "";
      },
      FORMAT,
    );
  }
}

/** POST /messages/count_tokens: what the prompt of the message has. */
export function countedMessage(body: Record<string, unknown>): ReadingCall {
  const request = parseCountTokensRequest(body);
  return {
    model: request.model,
    read: { input: toChatInput(toPrompt(request)), give: "count" },
    pieces: ({ count }) => [JSON.stringify({ input_tokens: count })],
  };
}

function eventText(event: MessageEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** The events of the answer; its faults name what the caller has sent. */
async function* messageEvents(
  prepared: Prepared,
  starting: Promise<InferenceAnswer>,
): AsyncGenerator<MessageEvent, void> {
  try {
    yield* writtenEvents(prepared, await starting);
  } catch (thrown) {
    throw asMessageError(thrown);
  }
}

async function* writtenEvents(
  { model, call, request, chat, reasoning }: Prepared,
  answer: InferenceAnswer,
): AsyncGenerator<MessageEvent, void> {
  const id = `msg_${uniqueSuffix()}`;
  const writer = new MessageWriter(
    { id, model: model.id, system_fingerprint: fingerprintOf(model) },
    request.thinking?.display !== "omitted",
  );
  const splitter = new ChoiceSplitter(reasoning, choiceCalls(chat));
  let complete = false;
  for await (const event of answer.events) {
    call.observe(event);
    if (event.type === "started") yield writer.start(call.usage);
    complete ||= event.type === "done";
    if (event.type !== "delta" && event.type !== "finish") continue;
    const split = event.type === "delta" ? splitter.push(event) : splitter.finish();
    call.reasoned(split.reasoningTokens);
    yield* writer.piece(split);
    if (event.type === "finish") writer.ended(event);
  }
  if (!complete) throw cutShort(answer.node);
  yield* writer.end(call.usage);
}
