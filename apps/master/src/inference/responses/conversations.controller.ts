import { AppError } from "@heddle/base/errors";
import {
  type Conversation,
  conversationOperations,
} from "@heddle/contracts/api/responses/conversations";
import type { GivenItem, ItemList, ResponseItem } from "@heddle/contracts/api/responses/items";
import type { ItemsQuery } from "@heddle/contracts/api/responses/operations";
import { checkItemTypes } from "@heddle/contracts/api/responses/request";
import { Controller, Inject, Param, Query, Req } from "@nestjs/common";
import type { DocumentPlace } from "../../documents/documents.ts";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { itemsWithIds } from "./chat-of-response.ts";
import { ConversationStore, type StoredConversation } from "./conversation-store.ts";
import { itemPage } from "./item-page.ts";
import { secondsNow } from "./response-builder.ts";
import { ResponseStore } from "./response-store.ts";

/** Conversations: items that responses continue from and are added to. */
@Controller()
export class ConversationsController {
  readonly #conversations: ConversationStore;
  readonly #responses: ResponseStore;

  constructor(
    @Inject(ConversationStore) conversations: ConversationStore,
    @Inject(ResponseStore) responses: ResponseStore,
  ) {
    this.#conversations = conversations;
    this.#responses = responses;
  }

  @Serves(conversationOperations.create)
  async create(@Req() request: CallerRequest): Promise<Conversation> {
    checkGiven(request);
    const { items, metadata } = bodyOf(conversationOperations.create, request);
    const conversation = {
      id: `conv_${uniqueSuffix()}`,
      created_at: secondsNow(),
      metadata: metadata ?? {},
      items: withIds(items ?? []),
    };
    await this.#conversations.create(this.#placeOf(request), conversation);
    return shown(conversation);
  }

  @Serves(conversationOperations.retrieve)
  async retrieve(@Req() request: CallerRequest, @Param("id") id: string): Promise<Conversation> {
    return shown(await this.#conversations.get(this.#placeOf(request), id));
  }

  @Serves(conversationOperations.update)
  async update(@Req() request: CallerRequest, @Param("id") id: string): Promise<Conversation> {
    const { metadata } = bodyOf(conversationOperations.update, request);
    const place = this.#placeOf(request);
    const change = (known: StoredConversation) => ({ ...known, metadata: metadata ?? {} });
    return shown(await this.#conversations.update(place, id, change));
  }

  @Serves(conversationOperations.delete)
  async delete(@Req() request: CallerRequest, @Param("id") id: string) {
    await this.#conversations.delete(this.#placeOf(request), id);
    return { id, object: "conversation.deleted" as const, deleted: true as const };
  }

  @Serves(conversationOperations.addItems)
  async addItems(@Req() request: CallerRequest, @Param("id") id: string): Promise<ItemList> {
    checkGiven(request);
    const added = withIds(bodyOf(conversationOperations.addItems, request).items);
    await this.#conversations.append(this.#placeOf(request), id, added);
    return itemPage(added, { limit: added.length, order: "asc" });
  }

  @Serves(conversationOperations.listItems)
  async listItems(
    @Req() request: CallerRequest,
    @Param("id") id: string,
    @Query() query: ItemsQuery,
  ): Promise<ItemList> {
    const { items } = await this.#conversations.get(this.#placeOf(request), id);
    return itemPage(items, query);
  }

  @Serves(conversationOperations.getItem)
  async getItem(
    @Req() request: CallerRequest,
    @Param("id") id: string,
    @Param("item") itemId: string,
  ): Promise<ResponseItem> {
    const { items } = await this.#conversations.get(this.#placeOf(request), id);
    const found = items.find((item) => item.id === itemId);
    if (!found) throw noItem(id);
    return found;
  }

  @Serves(conversationOperations.deleteItem)
  async deleteItem(
    @Req() request: CallerRequest,
    @Param("id") id: string,
    @Param("item") itemId: string,
  ): Promise<Conversation> {
    const change = (known: StoredConversation) => {
      const items = known.items.filter((item) => item.id !== itemId);
      if (items.length === known.items.length) throw noItem(id);
      return { ...known, items };
    };
    return shown(await this.#conversations.update(this.#placeOf(request), id, change));
  }

  #placeOf(request: CallerRequest): DocumentPlace {
    return this.#responses.placeOf(requestCaller(request));
  }
}

/** Before the union of items, whose faults would be those of other kinds. */
function checkGiven({ body }: CallerRequest): void {
  const bytes = body as Buffer | undefined;
  if (bytes?.length) checkItemTypes(parseJsonBody(bytes)["items"], "items");
}

function withIds(given: readonly GivenItem[]): ResponseItem[] {
  const reference = given.findIndex(({ type }) => type === "item_reference");
  if (reference >= 0) {
    const param = `items[${reference}].type`;
    const message = `Invalid value for '${param}': a conversation takes items, not references.`;
    throw new AppError("invalid_value", message, { param });
  }
  const suffix = uniqueSuffix();
  return itemsWithIds(given, (prefix, index) => `${prefix}_${suffix}_i${index}`);
}

function shown({ id, created_at, metadata }: StoredConversation): Conversation {
  return { id, object: "conversation", created_at, metadata };
}

function noItem(id: string): AppError {
  return new AppError("not_found", `The conversation ${id} has no such item.`);
}
