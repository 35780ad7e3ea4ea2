import { AppError } from "@heddle/base/errors";
import { parseTokenCountRequest } from "@heddle/contracts/api/responses/request";
import type { GenerateRequest } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { toGenerateRequest } from "../chat/chat-request.ts";
import { cutShort, InferenceCalls } from "../inference-calls.ts";
import { chatOfPrompt, inResponseTerms, renamed } from "./chat-of-response.ts";
import { ResponseContext } from "./response-context.ts";
import { ResponseStore } from "./response-store.ts";

/** POST /responses/input_tokens: the count of the engine that would answer. */
export class ResponseTokens {
  readonly #calls: InferenceCalls;
  readonly #context: ResponseContext;
  readonly #responses: ResponseStore;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(ResponseContext) context: ResponseContext,
    @Inject(ResponseStore) responses: ResponseStore,
  ) {
    this.#calls = calls;
    this.#context = context;
    this.#responses = responses;
  }

  async count(http: CallerRequest): Promise<number> {
    const request = parseTokenCountRequest(parseJsonBody(http.body as Buffer));
    const model = this.#calls.resolve(http, request.model);
    const owner = this.#responses.ownerOf(http.apiKey);
    const { all } = await this.#context.itemsOf(owner, request, uniqueSuffix());
    const chat = inResponseTerms(() => chatOfPrompt(request, all));
    try {
      return await this.#promptTokens(http, model, toGenerateRequest(chat, 1));
    } catch (thrown) {
      throw renamed(thrown);
    }
  }

  /** The engine counts a prompt when it begins with it; then the request is cancelled. */
  async #promptTokens(
    { id: requestId, apiKey }: CallerRequest,
    { id, deployment }: ModelRecord,
    request: GenerateRequest,
  ): Promise<number> {
    const { inFlight, dispatch, deadlineMs } = this.#calls.parts;
    const abort = inFlight.enter();
    try {
      const fairKey = apiKey?.id ?? "";
      const call = { requestId, deployment, request, fairKey, deadlineMs, priority: 0 };
      const { events, node } = await dispatch.start(call, abort.signal);
      for await (const event of events) {
        if (event.type === "started") return event.promptTokens;
        if (event.type !== "failed") break;
        const { code, message, param } = event.error;
        throw new AppError(code, message, { param, node, model: id });
      }
      throw cutShort(node);
    } finally {
      abort.abort();
      inFlight.leave(abort);
    }
  }
}
