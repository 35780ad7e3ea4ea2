import { parseTokenCountRequest } from "@heddle/contracts/api/responses/request";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { toChatInput } from "../chat/chat-request.ts";
import { type ReadingCall, TokenCalls } from "../tokens/token-calls.ts";
import { chatOfPrompt, inResponseTerms, renamed } from "./chat-of-response.ts";
import { ResponseContext } from "./response-context.ts";
import { ResponseStore } from "./response-store.ts";

/** POST /responses/input_tokens: the count of the engine that would answer. */
export class ResponseTokens {
  readonly #tokens: TokenCalls;
  readonly #context: ResponseContext;
  readonly #responses: ResponseStore;

  constructor(
    @Inject(TokenCalls) tokens: TokenCalls,
    @Inject(ResponseContext) context: ResponseContext,
    @Inject(ResponseStore) responses: ResponseStore,
  ) {
    this.#tokens = tokens;
    this.#context = context;
    this.#responses = responses;
  }

  async answer(http: CallerRequest, reply: FastifyReply): Promise<void> {
    try {
      await this.#tokens.answer(http, reply, (body) => this.#asked(http, body));
    } catch (thrown) {
      throw renamed(thrown);
    }
  }

  async #asked(http: CallerRequest, body: Record<string, unknown>): Promise<ReadingCall> {
    const request = parseTokenCountRequest(body);
    const place = this.#responses.placeOf(requestCaller(http));
    const { all, storedChars } = await this.#context.itemsOf(place, request, uniqueSuffix());
    const chat = inResponseTerms(() => chatOfPrompt(request, all));
    return {
      model: request.model,
      storedChars,
      read: { input: toChatInput(chat), give: "count" },
      pieces: ({ count }) => [`{"object":"response.input_tokens","input_tokens":${count}}`],
    };
  }
}
