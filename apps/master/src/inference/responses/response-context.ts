import { AppError } from "@heddle/base/errors";
import type { GivenItem, ResponseItem } from "@heddle/contracts/api/responses/items";
import { itemsOf, type TokenCountRequest } from "@heddle/contracts/api/responses/request";
import { Inject } from "@nestjs/common";
import type { DocumentPlace } from "../../documents/documents.ts";
import { checkCallIds, itemsWithIds } from "./chat-of-response.ts";
import { ConversationStore } from "./conversation-store.ts";
import {
  itemsOfStored,
  type KeptResponse,
  ResponseStore,
  type StoredResponse,
} from "./response-store.ts";

/** Responses that are read for one context. */
const MAX_READ = 256;
/** The most items of one context; more fits into no model. */
const MAX_ITEMS = 16_384;
const MAX_STORED_CHARS = 16 * 2 ** 20;

/** The items of a request: its own, and those that it continues from. */
export interface RequestItems {
  readonly own: readonly ResponseItem[];
  readonly all: readonly ResponseItem[];
  /** The characters of the items that it continues from or refers to. */
  readonly storedChars: number;
}

/** Characters that stored items may add to a context. */
class StoredChars {
  #chars = 0;

  get sum(): number {
    return this.#chars;
  }

  /** Counts items as often as they are in the context. Throws where they are too many. */
  add(items: readonly ResponseItem[], param: string): void {
    this.#chars += JSON.stringify(items).length;
    if (this.#chars > MAX_STORED_CHARS) throw tooLong(param);
  }
}

type Asked = Pick<TokenCountRequest, "input" | "previous_response_id" | "conversation">;

/** Finds what requests continue from: chains of responses, conversations and items by their ids. */
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

  async itemsOf(place: DocumentPlace, request: Asked, suffix: string): Promise<RequestItems> {
    const chars = new StoredChars();
    const before = await this.#before(place, request, chars);
    const own = await this.#own(place, itemsOf(request.input), suffix, chars);
    const all = [...before, ...own];
    if (all.length > MAX_ITEMS) throw tooLong("input");
    checkCallIds(all, own.length);
    return { own, all, storedChars: chars.sum };
  }

  /** The items that a response was asked with: its own, behind those of its chain that are still stored. */
  async inputOf(
    place: DocumentPlace,
    { head, input }: StoredResponse,
  ): Promise<readonly ResponseItem[]> {
    const find = async (id: string) => (await this.#responses.find(place, id))?.stored;
    return [...(await this.#chain(head.previous_response_id, new StoredChars(), find)), ...input];
  }

  async #before(
    place: DocumentPlace,
    { previous_response_id, conversation }: Asked,
    chars: StoredChars,
  ): Promise<readonly ResponseItem[]> {
    if (previous_response_id != null) {
      return this.#chain(previous_response_id, chars, (id) => this.#link(place, id));
    }
    if (conversation == null) return [];
    const { items } = await this.#conversations.get(place, conversationId(conversation));
    chars.add(items, "conversation");
    return items;
  }

  /** The items of the response and of all before it that are found, the oldest first. */
  async #chain(
    last: string | null,
    chars: StoredChars,
    find: (id: string) => Promise<StoredResponse | undefined>,
  ): Promise<readonly ResponseItem[]> {
    const links: (readonly ResponseItem[])[] = [];
    for (let id = last; id !== null; ) {
      const stored: StoredResponse | undefined = await find(id);
      if (!stored) break;
      const items = itemsOfStored(stored);
      chars.add(items, "previous_response_id");
      links.push(items);
      if (links.length > MAX_READ) throw tooLong("previous_response_id");
      id = stored.head.previous_response_id;
    }
    return links.reverse().flat();
  }

  async #link(place: DocumentPlace, id: string): Promise<StoredResponse> {
    const param = "previous_response_id";
    const kept = await this.#responses.find(place, id);
    if (!kept) {
      const message = `Previous response with id '${id}' not found.`;
      throw new AppError("previous_response_not_found", message, { param });
    }
    if (kept.stored.outcome) return kept.stored;
    const message = `Invalid value for '${param}': the response ${id} is still running; wait for its end.`;
    throw new AppError("invalid_value", message, { param });
  }

  async #own(
    place: DocumentPlace,
    given: readonly GivenItem[],
    suffix: string,
    chars: StoredChars,
  ): Promise<readonly ResponseItem[]> {
    const stored = new StoredItems(given, (id) => this.#responses.find(place, id));
    const groups: (readonly ResponseItem[])[] = [];
    for (const [at, item] of given.entries()) {
      if (item.type !== "item_reference") {
        groups.push(itemsWithIds([item], (prefix) => `${prefix}_${suffix}_i${at}`));
        continue;
      }
      const param = `input[${at}].id`;
      const found = [await stored.get(item.id, param)];
      chars.add(found, param);
      groups.push(found);
    }
    return groups.flat();
  }
}

/** The items that a request refers to; each response is read once. */
class StoredItems {
  readonly #read: (id: string) => Promise<KeptResponse | undefined>;
  readonly #wanted: ReadonlySet<string>;
  readonly #responses = new Set<string>();
  readonly #items = new Map<string, ResponseItem>();

  constructor(
    given: readonly GivenItem[],
    read: (id: string) => Promise<KeptResponse | undefined>,
  ) {
    this.#read = read;
    this.#wanted = new Set(
      given.flatMap((item) => (item.type === "item_reference" ? [item.id] : [])),
    );
  }

  async get(id: string, param: string): Promise<ResponseItem> {
    const suffix = suffixOf(id);
    if (suffix !== undefined && !this.#responses.has(suffix)) await this.#load(suffix, param);
    const found = this.#items.get(id);
    if (found) return found;
    const message = `Invalid value for '${param}': no item with id '${id}' is stored.`;
    throw new AppError("invalid_value", message, { param });
  }

  async #load(suffix: string, param: string): Promise<void> {
    this.#responses.add(suffix);
    if (this.#responses.size > MAX_READ) throw tooLong(param);
    const kept = await this.#read(`resp_${suffix}`);
    for (const item of kept ? itemsOfStored(kept.stored) : []) {
      const isOwn = suffixOf(item.id) === suffix && !this.#items.has(item.id);
      if (isOwn && this.#wanted.has(item.id)) this.#items.set(item.id, item);
    }
  }
}

/** Ids of items contain their response's. */
function suffixOf(id: string): string | undefined {
  return /^[a-z]+_([A-Za-z0-9]+)_i?\d+$/.exec(id)?.[1];
}

function conversationId(given: string | { readonly id: string }): string {
  return typeof given === "string" ? given : given.id;
}

function tooLong(param: string): AppError {
  const message = `Invalid value for '${param}': a context has at most ${MAX_ITEMS} items, ${MAX_READ} responses and ${MAX_STORED_CHARS} characters of stored items. Send the items that matter instead.`;
  return new AppError("invalid_value", message, { param });
}
