import { z } from "zod";
import { SUBJECT_NAME } from "../roles.ts";
import { grantable, roleName } from "./access/roles.ts";
import { serviceName } from "./access/service-accounts.ts";
import { limitMembers, limitsSchema } from "./limits/limits.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { pageQuery, pageSchema, projectName, time } from "./parameters.ts";

const environment = z
  .string()
  .regex(/^[a-z0-9]{1,16}$/, "expected 1 to 16 lower-case letters or digits")
  .default("live")
  .describe("The part after `hdl_`, which distinguishes the keys of installations.");

const expiresAt = z.iso
  .datetime({ offset: true })
  .optional()
  .describe("ISO 8601 with an offset or Z.");

/** The overlap of a rotated key by default, and its maximum. */
const DEFAULT_OVERLAP_S = 86_400;
const MAX_OVERLAP_S = 90 * 86_400;

const rotateKeyRequest = z
  .strictObject({
    overlap_seconds: z
      .int()
      .min(0)
      .max(MAX_OVERLAP_S)
      .default(DEFAULT_OVERLAP_S)
      .describe("Seconds for which the old key remains valid; 0 revokes it immediately."),
    expires_at: expiresAt.describe("When the new key expires; by default as the old one."),
    environment,
  })
  .meta({ id: "KeyRotation" });

/** The overlap with the old key, and the expiry of the new one. */
export type KeyRotation = z.input<typeof rotateKeyRequest>;

export const createKeyRequest = z
  .strictObject({
    name: z.string().min(1).max(200).describe("For people."),
    scopes: z
      .array(grantable)
      .min(1)
      .max(64)
      .optional()
      .describe(
        "Permissions of the key; without them, a role and a service account, to call and list models, files and batches.",
      ),
    role: roleName.optional().describe("The role of the key, in place of `scopes`."),
    owner: z
      .string()
      .regex(SUBJECT_NAME, "expected 1 to 200 printable characters")
      .optional()
      .describe("The user or service that answers for the key."),
    service_account: serviceName
      .optional()
      .describe(
        "The service account that the key belongs to. It has the roles of that one too, and is refused while that is disabled.",
      ),
    models: z
      .array(z.string().min(1).max(200))
      .max(1000)
      .default([])
      .describe("Ids of the models that the key may call; empty for all."),
    project: projectName
      .default("default")
      .describe(
        "The project that the key is bound to, and whose limits its calls count for. Only an administrator of the cluster in `default` has all projects.",
      ),
    limits: z.strictObject(limitMembers).default({}),
    deterministic: z
      .boolean()
      .default(false)
      .describe("Whether its calls are `deterministic` where they do not say otherwise."),
    expires_at: expiresAt.describe("When it ends: ISO 8601 with an offset or Z."),
    environment,
  })
  .meta({ id: "KeySpec" });

/** A new key: its name, scopes, models and limits. */
export type KeySpec = z.input<typeof createKeyRequest>;

const keySchema = z
  .object({
    id: z.string(),
    object: z.literal("api_key"),
    name: z.string(),
    role: z.string().nullable().describe("In place of `scopes`."),
    owner: z.string().nullable(),
    service_account: z.string().nullable(),
    scopes: z.array(z.string()),
    models: z.array(z.string()).describe("Empty for all."),
    unknown_models: z
      .array(z.string())
      .describe("The `models` without a registration; the key may call them once they have one."),
    project: z.string(),
    limits: limitsSchema,
    deterministic: z.boolean(),
    status: z
      .enum(["active", "disabled", "expired", "revoked"])
      .describe("`disabled` by its service account."),
    created_at: time,
    expires_at: time.nullable(),
    revoked_at: time.nullable(),
    rotated_from: z.string().nullable().describe("The id of the key that it replaced."),
    rotated_to: z.string().nullable().describe("The id of the last key that replaced it."),
    last_used_at: time
      .nullable()
      .describe("By the record of the answering master since its start; null for none."),
  })
  .meta({ id: "ApiKey", description: "An API key without its text." });

export type ApiKey = DataOf<typeof keySchema>;

const createdKeySchema = keySchema
  .extend({ key: z.string().describe("The key; it is shown only once.") })
  .meta({ id: "CreatedApiKey", description: "A new API key with its text." });

export type CreatedApiKey = DataOf<typeof createdKeySchema>;

const rotatedKeySchema = createdKeySchema
  .extend({ replaces: keySchema })
  .meta({ id: "RotatedApiKey", description: "A new API key with its text, and the old key." });

export type RotatedApiKey = DataOf<typeof rotatedKeySchema>;

export const keyOperations = {
  list: {
    operationId: "keys.list",
    method: "GET",
    path: "/api/v1/keys",
    permission: "cluster:admin",
    summary: "Lists the API keys, newest first, without their secrets.",
    query: pageQuery.extend({
      service_account: serviceName.optional().describe("Only keys of that service account."),
    }),
    readsState: true,
    replies: { 200: json(pageSchema(keySchema)) },
  },
  create: {
    operationId: "keys.create",
    method: "POST",
    path: "/api/v1/keys",
    permission: "cluster:admin",
    summary: "Creates an API key, which is shown only once.",
    headers: ["Idempotency-Key"],
    body: createKeyRequest,
    replies: { 200: json(createdKeySchema) },
  },
  rotate: {
    operationId: "keys.rotate",
    method: "POST",
    path: "/api/v1/keys/{id}/rotate",
    permission: "cluster:admin",
    summary: "Creates a key with the same permissions; the old one remains valid for an overlap.",
    headers: ["Idempotency-Key"],
    body: rotateKeyRequest,
    isBodyOptional: true,
    replies: { 200: json(rotatedKeySchema) },
  },
  revoke: {
    operationId: "keys.revoke",
    method: "DELETE",
    path: "/api/v1/keys/{id}",
    permission: "cluster:admin",
    summary: "Revokes an API key.",
    replies: { 200: json(keySchema) },
  },
} as const satisfies Record<string, ApiOperation>;
