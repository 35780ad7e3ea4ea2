import type { ChatCompletionRequest } from "@heddle/contracts/api/chat";
import type { ResponseItem } from "@heddle/contracts/api/responses/items";
import {
  parseResponseRequest,
  type ResponseRequest,
} from "@heddle/contracts/api/responses/request";
import type { FinishReason, ReasoningStyle } from "@heddle/contracts/engine";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { priorityOfRequest, tierOf } from "../call-priority.ts";
import { askedTokens, choiceCalls } from "../chat/chat-completions.ts";
import { estimatePromptTokens, toChatInput, toGenerateRequest } from "../chat/chat-request.ts";
import { mayHoldText } from "../chat/reasoning.ts";
import type { InferenceAnswer } from "../dispatch/inference-port.ts";
import { cutShort, InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { readingOf } from "../tokens/token-calls.ts";
import { chatOfResponse, inResponseTerms, renamed } from "./chat-of-response.ts";
import { ConversationStore } from "./conversation-store.ts";
import { Journal, type Piece, PieceSplitter } from "./pieces.ts";
import type { Outcome, ResponseHead } from "./response-builder.ts";
import { ResponseContext } from "./response-context.ts";
import { headOf } from "./response-head.ts";
import { ResponseStore, type StoredResponse, shown } from "./response-store.ts";
import { promptRoom, truncated } from "./truncation.ts";

/** A response whose key permits it. */
export interface PreparedResponse extends PermittedCall {
  readonly place: DocumentPlace;
  readonly request: ResponseRequest;
  /** With all that it continues from. */
  readonly items: readonly ResponseItem[];
  readonly chat: ChatCompletionRequest;
  readonly maxTokens: number | undefined;
  readonly reasoning: ReasoningStyle | undefined;
  readonly head: ResponseHead;
  readonly input: readonly ResponseItem[];
  readonly journal: Journal;
}

interface KeepOptions {
  readonly hasBegun?: boolean;
  readonly expectedVersion?: number;
}

/** Bytes of a stored response beside its input and its text. */
const EXTRA_BYTES = 4_096;

/** A response from its request to its stored end, however it is sent. */
export class ResponseGeneration {
  readonly #calls: InferenceCalls;
  readonly #context: ResponseContext;
  readonly #responses: ResponseStore;
  readonly #conversations: ConversationStore;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(ResponseContext) context: ResponseContext,
    @Inject(ResponseStore) responses: ResponseStore,
    @Inject(ConversationStore) conversations: ConversationStore,
  ) {
    this.#calls = calls;
    this.#context = context;
    this.#responses = responses;
    this.#conversations = conversations;
  }

  async prepare(
    http: CallerRequest,
    reply: FastifyReply,
    request: ResponseRequest,
    abort: AbortController,
  ): Promise<PreparedResponse> {
    const model = this.#calls.resolve(http, request.model);
    const place = this.#responses.placeOf(requestCaller(http));
    const suffix = uniqueSuffix();
    const { own: input, all, storedChars } = await this.#context.itemsOf(place, request, suffix);
    this.#calls.parts.inFlight.hold(abort, storedChars);
    const tier = tierOf(priorityOfRequest(http, request.service_tier));
    const head = headOf(`resp_${suffix}`, request, model, tier);
    if (head.store) {
      const bytes = (http.body as Buffer).byteLength + EXTRA_BYTES;
      this.#responses.checkRoom(place, bytes);
    }
    const chat = inResponseTerms(() => chatOfResponse(request, all));
    const { maxTokens, permitted } = await this.#permit(http, reply, { request, chat, model });
    const reasoning = this.#calls.parts.models.reasoningStyle(model);
    const journal = new Journal(request.stream === true || head.background === true);
    return {
      ...permitted,
      place,
      request,
      items: all,
      chat,
      maxTokens,
      reasoning,
      head,
      input,
      journal,
    };
  }

  async #permit(
    http: CallerRequest,
    reply: FastifyReply,
    { request, chat, model }: Pick<PreparedResponse, "request" | "chat" | "model">,
  ) {
    const promptTokens = estimatePromptTokens(chat);
    const asked = inResponseTerms(() => askedTokens(chat, model, this.#calls.parts.models));
    const maxTokens = this.#calls.boundOutput(http, {
      model,
      asked,
      promptTokens,
      choices: 1,
    });
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens,
      outputTokens: maxTokens ?? model.contextWindow,
      tier: request.service_tier,
      metadata: request.metadata ?? undefined,
      endUser: request.safety_identifier ?? request.user ?? undefined,
    });
    return { maxTokens, permitted };
  }

  async start(
    http: CallerRequest,
    prepared: PreparedResponse,
    signal: AbortSignal,
  ): Promise<InferenceAnswer> {
    const { chat, maxTokens, request, journal, reasoning } = prepared;
    try {
      const fitting =
        request.truncation === "auto" ? await this.#fitting(http, prepared, signal) : chat;
      const wanted = toGenerateRequest(fitting, maxTokens);
      const mayHold = mayHoldText(journal.isStreamed, reasoning);
      const work = { request: wanted, later: request.priority ?? 0, mayHold };
      return await this.#calls.start(http, prepared, work, signal);
    } catch (thrown) {
      throw renamed(thrown);
    }
  }

  /** The chat without its oldest items, where it is too long. */
  async #fitting(
    http: CallerRequest,
    prepared: PreparedResponse,
    signal: AbortSignal,
  ): Promise<ChatCompletionRequest> {
    const { request, items, maxTokens, model } = prepared;
    const { models } = this.#calls.parts;
    const count = async (left: readonly ResponseItem[]) => {
      const chat = chatOfResponse(request, left);
      if (!models.readsTokens(model)) return estimatePromptTokens(chat);
      const read = { kind: "read", input: toChatInput(chat), give: "count" } as const;
      const answer = await this.#calls.start(http, prepared, { request: read }, signal);
      return (await readingOf(answer)).count;
    };
    const room = promptRoom(models.contextTokens(model), maxTokens);
    return chatOfResponse(request, await truncated(items, room, count));
  }

  /** Passes the answer on in pieces; returns why it ended. */
  async generate(
    { call, chat, reasoning, journal }: PreparedResponse,
    { events, node }: InferenceAnswer,
    take: (piece: Piece) => void | Promise<void>,
  ): Promise<FinishReason | undefined> {
    const splitter = new PieceSplitter(reasoning, choiceCalls(chat), (tokens) =>
      call.reasoned(tokens),
    );
    try {
      for await (const event of events) {
        call.observe(event);
        for (const piece of splitter.push(event)) {
          journal.add(piece);
          await take(piece);
        }
        if (event.type === "done") return splitter.finish;
      }
    } catch (thrown) {
      throw renamed(thrown);
    }
    throw cutShort(node);
  }

  /** Stores what is to be stored of a response that has ended. */
  async keep(
    prepared: PreparedResponse,
    outcome: Outcome,
    { hasBegun = true, expectedVersion }: KeepOptions = {},
  ): Promise<StoredResponse> {
    const { place, head, input, journal } = prepared;
    const stored = { head, input, hasBegun, pieces: journal.pieces, outcome };
    if (head.store) await this.#responses.save(place, stored, expectedVersion);
    const isAnswer = outcome.status === "completed" || outcome.status === "incomplete";
    if (head.conversation !== null && isAnswer) {
      const items = [...input, ...shown(stored).output];
      await this.#conversations.append(place, head.conversation.id, items);
    }
    return stored;
  }
}

/** The request in a body. */
export function responseRequestOf({ body }: CallerRequest): ResponseRequest {
  return parseResponseRequest(parseJsonBody(body as Buffer));
}
