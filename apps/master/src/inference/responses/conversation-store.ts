import { AppError, toAppError } from "@heddle/base/errors";
import type { ResponseItem } from "@heddle/contracts/api/responses/items";
import { Inject } from "@nestjs/common";
import { DOCUMENTS, type DocumentPlace, type Documents } from "../../documents/documents.ts";

/** A conversation as it is stored. */
export interface StoredConversation {
  readonly id: string;
  /** Seconds since the epoch. */
  readonly created_at: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly items: readonly ResponseItem[];
}

const MAX_ITEMS = 10_000;
const MAX_BYTES = 8 * 2 ** 20;
/** Changes of others between a read and its write that are tolerated. */
const MAX_TRIES = 8;

/** Conversations in the masters' store, which stay until they are deleted. */
export class ConversationStore {
  readonly #documents: Documents;

  constructor(@Inject(DOCUMENTS) documents: Documents) {
    this.#documents = documents;
  }

  async create(place: DocumentPlace, conversation: StoredConversation): Promise<void> {
    await this.#put(place, conversation, 0);
  }

  /** Throws `not_found` where the owner has no such conversation. */
  async get(place: DocumentPlace, id: string): Promise<StoredConversation> {
    return (await this.#find(place, id)).conversation;
  }

  async delete(place: DocumentPlace, id: string): Promise<void> {
    const isKnown = isId(id) && (await this.#documents.delete("conversation", id, place));
    if (!isKnown) throw notFound(id);
  }

  /** Changes the conversation as it is now, whatever others change meanwhile. */
  async update(
    place: DocumentPlace,
    id: string,
    change: (conversation: StoredConversation) => StoredConversation,
  ): Promise<StoredConversation> {
    for (let tries = 1; ; tries++) {
      const { conversation, version } = await this.#find(place, id);
      const changed = change(conversation);
      try {
        await this.#put(place, changed, version);
        return changed;
      } catch (thrown) {
        const isTaken = toAppError(thrown).code === "precondition_failed";
        if (!isTaken || tries >= MAX_TRIES) throw thrown;
      }
    }
  }

  append(
    place: DocumentPlace,
    id: string,
    items: readonly ResponseItem[],
  ): Promise<StoredConversation> {
    return this.update(place, id, (conversation) => {
      return { ...conversation, items: [...conversation.items, ...items] };
    });
  }

  async #find(place: DocumentPlace, id: string) {
    const found = isId(id) && (await this.#documents.get("conversation", id, place));
    if (!found) throw notFound(id);
    const conversation = JSON.parse(Buffer.from(found.content).toString()) as StoredConversation;
    return { conversation, version: found.record.version };
  }

  async #put(place: DocumentPlace, conversation: StoredConversation, expectedVersion: number) {
    const { id, items } = conversation;
    const content = Buffer.from(JSON.stringify(conversation));
    if (items.length > MAX_ITEMS || content.byteLength > MAX_BYTES) {
      const message = `A conversation has at most ${MAX_ITEMS} items and ${MAX_BYTES} bytes. Delete items of '${id}', or begin another.`;
      throw new AppError("invalid_value", message, { param: "conversation" });
    }
    const document = { kind: "conversation", id, ...place } as const;
    await this.#documents.put(document, content, { expectedVersion });
  }
}

const MAX_ID_CHARS = 128;

function isId(id: string): boolean {
  return /^[A-Za-z0-9_-]{1,128}$/.test(id);
}

function notFound(id: string): AppError {
  const message = `No conversation has the id '${id.slice(0, MAX_ID_CHARS)}'.`;
  return new AppError("not_found", message, { param: "conversation" });
}
