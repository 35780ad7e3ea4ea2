import { AppError } from "@heddle/base/errors";
import type { ChatCompletionRequest } from "@heddle/contracts/api/chat";
import type { ResponseItem } from "@heddle/contracts/api/responses/items";
import {
  itemsOf,
  parseResponseRequest,
  type ResponseRequest,
} from "@heddle/contracts/api/responses/request";
import type { ResponseEvent } from "@heddle/contracts/api/responses/response";
import type { ReasoningStyle } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import type { EventStream } from "../../http/event-stream.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { askedTokens, callsTools } from "../chat/chat-completions.ts";
import { estimatePromptTokens, toGenerateRequest } from "../chat/chat-request.ts";
import type { InferenceAnswer } from "../dispatch/inference-port.ts";
import {
  cutShort,
  InferenceCalls,
  type PermittedCall,
  type StreamFormat,
} from "../inference-calls.ts";
import {
  chatOfResponse,
  checkCallIds,
  inResponseTerms,
  itemsWithIds,
  renamed,
} from "./chat-of-response.ts";
import { appendJoined, type Piece, PieceSplitter } from "./pieces.ts";
import {
  eventText,
  failureOutcome,
  outcomeOf,
  ResponseBuilder,
  type ResponseHead,
} from "./response-builder.ts";
import { headOf } from "./response-head.ts";

interface Prepared extends PermittedCall {
  readonly request: ResponseRequest;
  readonly chat: ChatCompletionRequest;
  readonly maxTokens: number | undefined;
  readonly reasoning: ReasoningStyle | undefined;
  readonly head: ResponseHead;
  readonly input: readonly ResponseItem[];
}

/** POST /responses: a chat call, whose answer becomes items and events. */
export class ResponseCalls {
  readonly #calls: InferenceCalls;

  constructor(@Inject(InferenceCalls) calls: InferenceCalls) {
    this.#calls = calls;
  }

  answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    return this.#calls.answer(
      reply,
      () => inResponseTerms(() => this.#prepare(http, reply)),
      (prepared, signal) =>
        prepared.request.stream === true
          ? this.#stream(http, reply, prepared, signal)
          : this.#whole(http, reply, prepared, signal),
    );
  }

  #prepare(http: CallerRequest, reply: FastifyReply): Prepared {
    const { models } = this.#calls.parts;
    const request = parseResponseRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const suffix = uniqueSuffix();
    const given = itemsOf(request.input);
    const input = itemsWithIds(given, (prefix, index) => `${prefix}_${suffix}_i${index}`);
    checkCallIds(input, input.length);
    const chat = chatOfResponse(request, input);
    const promptTokens = estimatePromptTokens(chat);
    const asked = askedTokens(chat, model, models);
    const maxTokens = this.#calls.boundOutput(http, asked, promptTokens, 1);
    const permitted = this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: maxTokens ?? model.contextWindow,
      metadata: request.metadata ?? undefined,
      endUser: request.safety_identifier ?? request.user ?? undefined,
    });
    const head = headOf(`resp_${suffix}`, request, model);
    const reasoning = models.reasoningStyle(model);
    return { ...permitted, request, chat, maxTokens, reasoning, head, input };
  }

  async #whole(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<undefined> {
    const pieces: Piece[] = [];
    const builder = new ResponseBuilder(prepared.head);
    const finish = await this.#generate(
      prepared,
      await this.#start(http, prepared, signal),
      (piece) => appendJoined(pieces, piece),
    );
    for (const piece of pieces) builder.push(piece);
    builder.end(outcomeOf(finish, prepared.call.usage));
    this.#calls.send(http, reply, prepared, JSON.stringify(builder.response));
  }

  #stream(
    http: CallerRequest,
    reply: FastifyReply,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<AppError | undefined> {
    const builder = new ResponseBuilder(prepared.head);
    const isPadded = prepared.request.stream_options?.include_obfuscation === true;
    const textOf = (events: readonly ResponseEvent[]) =>
      events.map((event) => eventText(event, isPadded)).join("");
    let hasBegun = false;
    const format: StreamFormat = {
      end: "",
      failure: (failure) =>
        textOf(
          hasBegun
            ? builder.end(failureOutcome(failure, prepared.call.usage))
            : builder.refuse(failure),
        ),
    };
    const starting = this.#start(http, prepared, signal);
    const pump = async (stream: EventStream) => {
      const answer = await starting;
      hasBegun = true;
      stream.write(textOf([...builder.create(), ...builder.begin()]));
      const finish = await this.#generate(prepared, answer, async (piece) => {
        if (stream.write(textOf(builder.push(piece)))) return;
        await stream.drained();
        signal.throwIfAborted();
      });
      return textOf(builder.end(outcomeOf(finish, prepared.call.usage)));
    };
    return this.#calls.stream(http, reply, prepared, signal, pump, format);
  }

  async #start(
    http: CallerRequest,
    prepared: Prepared,
    signal: AbortSignal,
  ): Promise<InferenceAnswer> {
    const { chat, maxTokens, request } = prepared;
    const wanted = toGenerateRequest(chat, maxTokens);
    const work = { request: wanted, priority: 0 - (request.priority ?? 0) };
    try {
      return await this.#calls.start(http, prepared, work, signal);
    } catch (thrown) {
      throw renamed(thrown);
    }
  }

  /** Passes the answer on in pieces; returns why it ended. */
  async #generate(
    { call, chat, reasoning }: Prepared,
    { events, node }: InferenceAnswer,
    take: (piece: Piece) => void | Promise<void>,
  ) {
    const splitter = new PieceSplitter(reasoning, callsTools(chat), (tokens) =>
      call.reasoned(tokens),
    );
    try {
      for await (const event of events) {
        call.observe(event);
        for (const piece of splitter.push(event)) await take(piece);
        if (event.type === "done") return splitter.finish;
      }
    } catch (thrown) {
      throw renamed(thrown);
    }
    throw cutShort(node);
  }
}
