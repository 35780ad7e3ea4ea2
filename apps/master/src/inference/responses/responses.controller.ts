import { AppError } from "@heddle/base/errors";
import type { ItemList } from "@heddle/contracts/api/responses/items";
import {
  type ItemsQuery,
  type RetrieveQuery,
  responseOperations,
} from "@heddle/contracts/api/responses/operations";
import type { ApiResponse } from "@heddle/contracts/api/responses/response";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { BackgroundResponses } from "./background-responses.ts";
import { itemPage } from "./item-page.ts";
import { ResponseCalls } from "./response-calls.ts";
import { ResponseContext } from "./response-context.ts";
import { StoredSource } from "./response-source.ts";
import { type KeptResponse, ResponseStore, shown } from "./response-store.ts";
import { ResponseStreams } from "./response-streams.ts";
import { ResponseTokens } from "./response-tokens.ts";

@Controller()
export class ResponsesController {
  readonly #responses: ResponseCalls;
  readonly #background: BackgroundResponses;
  readonly #store: ResponseStore;
  readonly #context: ResponseContext;
  readonly #streams: ResponseStreams;
  readonly #tokens: ResponseTokens;

  constructor(
    @Inject(ResponseCalls) responses: ResponseCalls,
    @Inject(BackgroundResponses) background: BackgroundResponses,
    @Inject(ResponseStore) store: ResponseStore,
    @Inject(ResponseContext) context: ResponseContext,
    @Inject(ResponseStreams) streams: ResponseStreams,
    @Inject(ResponseTokens) tokens: ResponseTokens,
  ) {
    this.#responses = responses;
    this.#background = background;
    this.#store = store;
    this.#context = context;
    this.#streams = streams;
    this.#tokens = tokens;
  }

  @Serves(responseOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#responses.answer(request, reply);
  }

  @Serves(responseOperations.retrieve)
  async retrieve(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
    @Query() query: RetrieveQuery,
  ): Promise<void> {
    const { stream, starting_after: after, include_obfuscation: isPadded } = query;
    if (after !== undefined && !stream) {
      const message = "Invalid value for 'starting_after': it needs `stream=true`.";
      throw new AppError("invalid_value", message, { param: "starting_after" });
    }
    const place = this.#store.placeOf(requestCaller(request));
    const running = this.#background.find(id, place);
    const kept = running ? undefined : await this.#store.get(place, id);
    if (!stream) {
      await reply.send(shown(running?.stored ?? (kept as KeptResponse).stored));
      return;
    }
    const source = running ?? new StoredSource(this.#store, place, kept as KeptResponse);
    await this.#streams.send(request, reply, source, { after, isPadded });
  }

  @Serves(responseOperations.delete)
  async delete(@Req() request: CallerRequest, @Param("id") id: string) {
    const place = this.#store.placeOf(requestCaller(request));
    await this.#store.delete(place, id);
    return { id, object: "response" as const, deleted: true as const };
  }

  @Serves(responseOperations.cancel)
  async cancel(@Req() request: CallerRequest, @Param("id") id: string): Promise<ApiResponse> {
    const place = this.#store.placeOf(requestCaller(request));
    const kept = await this.#store.get(place, id);
    if (!kept.stored.head.background) {
      const message = "Only responses with `background: true` can be cancelled.";
      throw new AppError("invalid_value", message, { param: "id" });
    }
    return shown(await this.#background.cancel(place, kept));
  }

  @Serves(responseOperations.inputItems)
  async inputItems(
    @Req() request: CallerRequest,
    @Param("id") id: string,
    @Query() query: ItemsQuery,
  ): Promise<ItemList> {
    const place = this.#store.placeOf(requestCaller(request));
    const running = this.#background.find(id, place);
    const stored = running?.stored ?? (await this.#store.get(place, id)).stored;
    return itemPage(await this.#context.inputOf(place, stored), query);
  }

  @Serves(responseOperations.inputTokens)
  inputTokens(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#tokens.answer(request, reply);
  }
}
