import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { listSchema, stateQuery, time } from "../parameters.ts";

const webhookRequest = z
  .strictObject({
    url: z.url({ protocol: /^https?$/, error: "expected a URL" }).max(2_048),
    types: z
      .array(z.string().min(1).max(128))
      .max(64)
      .default([])
      .describe("Types of events; all if empty."),
    project: z.string().min(1).max(63).optional().describe("Only events of that project."),
  })
  .meta({ id: "WebhookSettings" });

export type WebhookSettings = z.input<typeof webhookRequest>;

const failureSchema = z.object({
  sequence: z.string(),
  attempts: z.int(),
  message: z.string(),
});

const webhookSchema = z
  .object({
    object: z.literal("webhook"),
    id: z.string(),
    url: z.string(),
    types: z.array(z.string()),
    project: z.string().nullable(),
    created_at: time,
    next_sequence: z.string().describe("The first event that was not sent yet."),
    waiting: z.int().describe("Events that are sent again later."),
    failed: z.array(failureSchema).describe("Events that were given up, the latest 256."),
  })
  .meta({ id: "Webhook", description: "Where events are sent, after the Standard Webhooks." });

export type WebhookView = DataOf<typeof webhookSchema>;

const secretSchema = webhookSchema
  .extend({ secret: z.string().describe("Shown once, as `whsec_BASE64`.") })
  .meta({ id: "WebhookWithSecret" });

export type WebhookWithSecret = DataOf<typeof secretSchema>;

const WEBHOOKS_PATH = "/api/v1/webhooks";
const ADMIN = { permission: "cluster:admin" } as const;

export const webhookOperations = {
  create: {
    ...ADMIN,
    operationId: "webhooks.create",
    method: "POST",
    path: WEBHOOKS_PATH,
    summary: "Sends the events of the event log from now on to a URL, signed.",
    headers: ["Idempotency-Key"],
    body: webhookRequest,
    replies: { 200: json(secretSchema) },
  },
  list: {
    ...ADMIN,
    operationId: "webhooks.list",
    method: "GET",
    path: WEBHOOKS_PATH,
    summary: "Lists the webhooks, with what they could not deliver.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(listSchema(webhookSchema).meta({ id: "WebhookList" })) },
  },
  remove: {
    ...ADMIN,
    operationId: "webhooks.remove",
    method: "DELETE",
    path: `${WEBHOOKS_PATH}/{id}`,
    summary: "Removes a webhook.",
    replies: { 200: json(webhookSchema) },
  },
  rotateSecret: {
    ...ADMIN,
    operationId: "webhooks.rotateSecret",
    method: "POST",
    path: `${WEBHOOKS_PATH}/{id}/rotate`,
    summary: "Gives a webhook a new secret; for a day both sign.",
    replies: { 200: json(secretSchema) },
  },
  retry: {
    ...ADMIN,
    operationId: "webhooks.retry",
    method: "POST",
    path: `${WEBHOOKS_PATH}/{id}/retry`,
    summary: "Sends the events again that were given up.",
    replies: { 200: json(webhookSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
