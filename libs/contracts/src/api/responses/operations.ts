import { z } from "zod";
import { type ApiOperation, json, type QueryOf } from "../operation.ts";
import { booleanParameter, integerParameter } from "../parameters.ts";
import { itemList } from "./items.ts";
import { responseRequest, tokenCountRequest } from "./request.ts";
import { response, responseEvents } from "./response.ts";

const flag = booleanParameter(["true", "1"], ["false", "0"]);
const MAX_PAGE_ITEMS = 100;
const DEFAULT_PAGE_ITEMS = 20;

/** Clients name lists as `include[]` or `include`; their values are in the reply in any case. */
export const itemsQuery = z.object({
  limit: integerParameter(1, MAX_PAGE_ITEMS)
    .default(DEFAULT_PAGE_ITEMS)
    .describe("Maximum number of items."),
  order: z.enum(["asc", "desc"]).default("desc").describe("By age; the newest first if absent."),
  after: z.string("expected one value").max(128).optional().describe("The item before the page."),
});
export type ItemsQuery = QueryOf<{ readonly query: typeof itemsQuery }>;

const retrieveQuery = z.object({
  stream: flag.describe("Repeats the events, and follows a response that is running."),
  starting_after: integerParameter(0, 999_999_999)
    .optional()
    .describe("The last `sequence_number` that was read; needs `stream`."),
  include_obfuscation: flag,
});
export type RetrieveQuery = QueryOf<{ readonly query: typeof retrieveQuery }>;

const PATH = "/api/v1/responses";
const PERMISSION = "inference:create";
const streamed = { 200: { ...json(response), "text/event-stream": responseEvents } };

export const responseOperations = {
  create: {
    operationId: "createResponse",
    method: "POST",
    path: PATH,
    permission: PERMISSION,
    summary: "Creates a response, whole or as a stream of events.",
    headers: ["X-Heddle-Priority"],
    body: responseRequest,
    replies: streamed,
  },
  retrieve: {
    operationId: "getResponse",
    method: "GET",
    path: `${PATH}/{id}`,
    permission: PERMISSION,
    summary: "Returns a stored response, or the events of its stream.",
    query: retrieveQuery,
    replies: streamed,
  },
  delete: {
    operationId: "deleteResponse",
    method: "DELETE",
    path: `${PATH}/{id}`,
    permission: PERMISSION,
    summary: "Deletes a stored response; one that is running is cancelled.",
    replies: {
      200: json(
        z.object({ id: z.string(), object: z.literal("response"), deleted: z.literal(true) }),
      ),
    },
  },
  cancel: {
    operationId: "cancelResponse",
    method: "POST",
    path: `${PATH}/{id}/cancel`,
    permission: PERMISSION,
    summary: "Cancels a background response; one that has ended stays as it is.",
    replies: { 200: json(response) },
  },
  inputItems: {
    operationId: "listInputItems",
    method: "GET",
    path: `${PATH}/{id}/input_items`,
    permission: PERMISSION,
    summary: "Lists the items that a stored response was asked with, its chain's included.",
    query: itemsQuery,
    replies: { 200: json(itemList) },
  },
  inputTokens: {
    operationId: "countInputTokens",
    method: "POST",
    path: `${PATH}/input_tokens`,
    permission: PERMISSION,
    summary: "Counts the tokens of a prompt as its model does.",
    body: tokenCountRequest,
    replies: {
      200: json(z.object({ object: z.literal("response.input_tokens"), input_tokens: z.int() })),
    },
  },
} as const satisfies Record<string, ApiOperation>;
