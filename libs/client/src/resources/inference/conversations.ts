import type { Conversation } from "@heddle/contracts/api/responses/conversations";
import type { GivenItem, ItemList, ResponseItem } from "@heddle/contracts/api/responses/items";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";
import type { PageOfItems } from "./responses.ts";

type Metadata = Readonly<Record<string, string>>;

/** Conversations that responses continue from: `heddle.conversations`. */
export class Conversations {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Creates a conversation, with items or without. */
  create(
    spec: { readonly items?: readonly GivenItem[]; readonly metadata?: Metadata } = {},
    { signal }: CallOptions = {},
  ): Promise<Conversation> {
    const path = "/conversations";
    return this.#transport.json({ method: "POST", path, body: spec, signal, maxRetries: 0 });
  }

  /** A conversation without its items. */
  retrieve(id: string, { signal }: CallOptions = {}): Promise<Conversation> {
    return this.#transport.json({ method: "GET", path: pathOf(id), signal });
  }

  /** Replaces the metadata. */
  update(id: string, metadata: Metadata, { signal }: CallOptions = {}): Promise<Conversation> {
    const body = { metadata };
    const path = pathOf(id);
    return this.#transport.json({ method: "POST", path, body, signal, isRepeatable: true });
  }

  /** Deletes a conversation with its items. */
  delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal });
  }

  /** Adds items; a refused request is not repeated. */
  addItems(
    id: string,
    items: readonly GivenItem[],
    { signal }: CallOptions = {},
  ): Promise<ItemList> {
    const path = `${pathOf(id)}/items`;
    return this.#transport.json({ method: "POST", path, body: { items }, signal, maxRetries: 0 });
  }

  /** A page of a conversation's items. */
  listItems(id: string, query: PageOfItems = {}, { signal }: CallOptions = {}): Promise<ItemList> {
    const path = `${pathOf(id)}/items`;
    return this.#transport.json({ method: "GET", path, query: { ...query }, signal });
  }

  /** An item of a conversation. */
  getItem(id: string, item: string, { signal }: CallOptions = {}): Promise<ResponseItem> {
    return this.#transport.json({ method: "GET", path: itemPath(id, item), signal });
  }

  /** Deletes an item of a conversation. */
  deleteItem(id: string, item: string, { signal }: CallOptions = {}): Promise<Conversation> {
    return this.#transport.json({ method: "DELETE", path: itemPath(id, item), signal });
  }
}

function pathOf(id: string): string {
  return `/conversations/${pathPart(id)}`;
}

function itemPath(id: string, item: string): string {
  return `${pathOf(id)}/items/${pathPart(item)}`;
}
