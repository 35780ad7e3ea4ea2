import { AppError } from "@heddle/base/errors";
import type { GivenItem, ResponseItem } from "@heddle/contracts/api/responses/items";
import { itemsOf, type TokenCountRequest } from "@heddle/contracts/api/responses/request";
import { Inject } from "@nestjs/common";
import { checkCallIds, itemsWithIds } from "./chat-of-response.ts";
import { ConversationStore } from "./conversation-store.ts";
import { itemsOfStored, ResponseStore, type StoredResponse } from "./response-store.ts";

const MAX_CHAIN = 256;
/** Texts of one context; more fits into no model. */
const MAX_CONTEXT_CHARS = 16 * 2 ** 20;

/** The items of a request: its own, and those that it goes on from. */
export interface RequestItems {
  readonly own: readonly ResponseItem[];
  readonly all: readonly ResponseItem[];
}

type Asked = Pick<TokenCountRequest, "input" | "previous_response_id" | "conversation">;

/** Finds what requests go on from: chains of responses, conversations and items by their ids. */
export class ResponseContext {
  readonly #responses: ResponseStore;
  readonly #conversations: ConversationStore;

  constructor(
    @Inject(ResponseStore) responses: ResponseStore,
    @Inject(ConversationStore) conversations: ConversationStore,
  ) {
    this.#responses = responses;
    this.#conversations = conversations;
  }

  async itemsOf(owner: string, request: Asked, suffix: string): Promise<RequestItems> {
    const before = await this.#before(owner, request);
    const own = await this.#own(owner, itemsOf(request.input), suffix);
    const all = [...before, ...own];
    checkCallIds(all, own.length);
    return { own, all };
  }

  #before(owner: string, { previous_response_id, conversation }: Asked) {
    if (previous_response_id != null) return this.#chain(owner, previous_response_id);
    if (conversation == null) return [];
    return this.#conversation(owner, conversationId(conversation));
  }

  async #conversation(owner: string, id: string): Promise<readonly ResponseItem[]> {
    return (await this.#conversations.get(owner, id)).items;
  }

  /** The items of the response and of all before it, the oldest first. */
  async #chain(owner: string, last: string): Promise<readonly ResponseItem[]> {
    const links: (readonly ResponseItem[])[] = [];
    let chars = 0;
    for (let id: string | null = last; id !== null; ) {
      const stored: StoredResponse = await this.#link(owner, id);
      if (stored.head.conversation !== null && id !== last) break;
      const items = itemsOfStored(stored);
      chars += JSON.stringify(items).length;
      links.push(items);
      if (links.length > MAX_CHAIN || chars > MAX_CONTEXT_CHARS) throw tooLong();
      id = stored.head.previous_response_id;
    }
    return links.reverse().flat();
  }

  async #link(owner: string, id: string): Promise<StoredResponse> {
    const param = "previous_response_id";
    const kept = await this.#responses.find(owner, id);
    if (!kept) {
      const message = `Previous response with id '${id}' not found.`;
      throw new AppError("previous_response_not_found", message, { param });
    }
    if (kept.stored.outcome) return kept.stored;
    const message = `Invalid value for '${param}': the response ${id} is still running; wait for its end.`;
    throw new AppError("invalid_value", message, { param });
  }

  async #own(
    owner: string,
    given: readonly GivenItem[],
    suffix: string,
  ): Promise<readonly ResponseItem[]> {
    const groups: (readonly ResponseItem[])[] = [];
    for (const [at, item] of given.entries()) {
      groups.push(
        item.type === "item_reference"
          ? [await this.#referenced(owner, item.id, at)]
          : itemsWithIds([item], (prefix) => `${prefix}_${suffix}_i${at}`),
      );
    }
    return groups.flat();
  }

  /** Ids of items contain their response's. */
  async #referenced(owner: string, id: string, at: number): Promise<ResponseItem> {
    const suffix = /^[a-z]+_([A-Za-z0-9]+)_i?\d+$/.exec(id)?.[1];
    const kept = suffix && (await this.#responses.find(owner, `resp_${suffix}`));
    const found = kept && itemsOfStored(kept.stored).find((item) => item.id === id);
    if (found) return found;
    const param = `input[${at}].id`;
    const message = `Invalid value for '${param}': no item with id '${id}' is stored.`;
    throw new AppError("invalid_value", message, { param });
  }
}

function conversationId(given: string | { readonly id: string }): string {
  return typeof given === "string" ? given : given.id;
}

function tooLong(): AppError {
  const param = "previous_response_id";
  const message = `Invalid value for '${param}': the chain has more than ${MAX_CHAIN} responses or ${MAX_CONTEXT_CHARS} characters. Begin another with the items that matter.`;
  return new AppError("invalid_value", message, { param });
}
