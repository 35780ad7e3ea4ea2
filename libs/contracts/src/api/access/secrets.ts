import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema, stateQuery, time } from "../parameters.ts";

/** The name of a secret: 1 to 63 characters. */
export const SECRET_NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/;
/** The longest value, in bytes of UTF-8. */
const MAX_SECRET_BYTES = 32 * 1024;
/** The longest encrypted value, in characters of base64. */
export const MAX_SEALED = 48 * 1024;
/** Variables of one job that take their values from secrets. */
export const MAX_SECRET_VARIABLES = 32;

const utf8 = new TextEncoder();

const secretRequest = z
  .strictObject({
    value: z
      .string()
      .min(1)
      .refine((given) => given.isWellFormed(), "expected text without lone surrogates")
      .refine((given) => !given.includes("\0"), "expected text without NUL characters")
      .refine(
        (given) => utf8.encode(given).length <= MAX_SECRET_BYTES,
        `expected at most ${MAX_SECRET_BYTES} bytes of UTF-8`,
      )
      .describe("At most 32 KiB of text. No operation shows it again."),
  })
  .meta({ id: "SecretValue" });

const secretSchema = z
  .object({
    object: z.literal("secret"),
    id: z.string(),
    name: z.string(),
    project: z.string(),
    version: z.int().describe("Incremented with each new value."),
    created_at: time,
    updated_at: time,
  })
  .meta({ id: "Secret", description: "A named secret of a project, without its value." });

export type SecretView = DataOf<typeof secretSchema>;

const SECRETS_PATH = "/api/v1/secrets";
const SECRET_PATH = `${SECRETS_PATH}/{name}`;

export const secretOperations = {
  list: {
    operationId: "secrets.list",
    method: "GET",
    path: SECRETS_PATH,
    permission: "secrets:read",
    summary: "Lists the secrets of the caller's project by name, without their values.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(secretSchema)) },
  },
  get: {
    operationId: "secrets.get",
    method: "GET",
    path: SECRET_PATH,
    permission: "secrets:read",
    summary: "Shows a secret without its value.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(secretSchema) },
  },
  set: {
    operationId: "secrets.set",
    method: "PUT",
    path: SECRET_PATH,
    permission: "secrets:write",
    summary: "Creates a secret of the caller's project, or gives it another value.",
    headers: ["Idempotency-Key"],
    body: secretRequest,
    replies: { 200: json(secretSchema) },
  },
  remove: {
    operationId: "secrets.remove",
    method: "DELETE",
    path: SECRET_PATH,
    permission: "secrets:write",
    summary: "Removes a secret that no job names which has not ended.",
    replies: { 200: json(secretSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
