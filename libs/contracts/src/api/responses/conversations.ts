import { z } from "zod";
import { chatCompletionRequest } from "../chat.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { givenItem, item, itemList } from "./items.ts";
import { itemsQuery } from "./operations.ts";

/** OpenAI's bound on the items of one request. */
const MAX_ADDED_ITEMS = 20;
const { metadata } = chatCompletionRequest.shape;
const items = z.array(givenItem).max(MAX_ADDED_ITEMS);

const conversation = z
  .object({
    id: z.string(),
    object: z.literal("conversation"),
    created_at: z.int().describe("Seconds since the epoch."),
    metadata: z.record(z.string(), z.string()),
  })
  .meta({ id: "Conversation" });
export type Conversation = DataOf<typeof conversation>;

const createConversationRequest = z
  .object({ items: items.nullish(), metadata })
  .meta({ id: "CreateConversation" });

const PATH = "/api/v1/conversations";
const PERMISSION = "inference:create";

export const conversationOperations = {
  create: {
    operationId: "createConversation",
    method: "POST",
    path: PATH,
    permission: PERMISSION,
    summary: "Creates a conversation, which responses may continue.",
    body: createConversationRequest,
    isBodyOptional: true,
    replies: { 200: json(conversation) },
  },
  retrieve: {
    operationId: "getConversation",
    method: "GET",
    path: `${PATH}/{id}`,
    permission: PERMISSION,
    summary: "Returns a conversation without its items.",
    replies: { 200: json(conversation) },
  },
  update: {
    operationId: "updateConversation",
    method: "POST",
    path: `${PATH}/{id}`,
    permission: PERMISSION,
    summary: "Replaces a conversation's metadata.",
    body: z.object({ metadata }).meta({ id: "UpdateConversation" }),
    replies: { 200: json(conversation) },
  },
  delete: {
    operationId: "deleteConversation",
    method: "DELETE",
    path: `${PATH}/{id}`,
    permission: PERMISSION,
    summary: "Deletes a conversation with its items; its responses stay.",
    replies: {
      200: json(
        z.object({
          id: z.string(),
          object: z.literal("conversation.deleted"),
          deleted: z.literal(true),
        }),
      ),
    },
  },
  addItems: {
    operationId: "createConversationItems",
    method: "POST",
    path: `${PATH}/{id}/items`,
    permission: PERMISSION,
    summary: "Adds up to 20 items to a conversation.",
    body: z.object({ items: items.min(1) }).meta({ id: "CreateConversationItems" }),
    replies: { 200: json(itemList) },
  },
  listItems: {
    operationId: "listConversationItems",
    method: "GET",
    path: `${PATH}/{id}/items`,
    permission: PERMISSION,
    summary: "Lists the items of a conversation.",
    query: itemsQuery,
    replies: { 200: json(itemList) },
  },
  getItem: {
    operationId: "getConversationItem",
    method: "GET",
    path: `${PATH}/{id}/items/{item}`,
    permission: PERMISSION,
    summary: "Returns an item of a conversation.",
    replies: { 200: json(item) },
  },
  deleteItem: {
    operationId: "deleteConversationItem",
    method: "DELETE",
    path: `${PATH}/{id}/items/{item}`,
    permission: PERMISSION,
    summary: "Deletes an item of a conversation.",
    replies: { 200: json(conversation) },
  },
} as const satisfies Record<string, ApiOperation>;
