import { z } from "zod";
import { SERVICE_NAME } from "../../roles.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema, stateQuery, time } from "../parameters.ts";

export const serviceName = z
  .string()
  .regex(SERVICE_NAME, "expected 1 to 63 of a-z, 0-9, `.`, `_` and `-`")
  .describe("The name of a service account.");

export const setServiceRequest = z
  .strictObject({
    description: z.string().max(200).optional().describe("What the program does, for people."),
    disabled: z.boolean().optional().describe("Whether its keys are refused."),
  })
  .meta({ id: "ServiceAccountSettings" });

/** What a service account is for, and whether its keys are refused. */
export type ServiceAccountSettings = z.input<typeof setServiceRequest>;

const serviceSchema = z
  .object({
    id: z.string(),
    object: z.literal("service_account"),
    name: z.string(),
    description: z.string(),
    disabled: z.boolean(),
    created_at: time,
    updated_at: time,
    disabled_at: time.nullable(),
  })
  .meta({ id: "ServiceAccount", description: "A program with keys and roles of its own." });

export type ServiceAccount = DataOf<typeof serviceSchema>;

export const serviceOperations = {
  list: {
    operationId: "serviceAccounts.list",
    method: "GET",
    path: "/api/v1/service-accounts",
    permission: "cluster:admin",
    summary: "Lists the service accounts by name.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(serviceSchema)) },
  },
  get: {
    operationId: "serviceAccounts.get",
    method: "GET",
    path: "/api/v1/service-accounts/{name}",
    permission: "cluster:admin",
    summary: "Shows a service account.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(serviceSchema) },
  },
  set: {
    operationId: "serviceAccounts.set",
    method: "PUT",
    path: "/api/v1/service-accounts/{name}",
    permission: "cluster:admin",
    summary:
      "Creates or changes a service account: what the body lacks stays. Keys of a disabled one are refused.",
    headers: ["Idempotency-Key"],
    body: setServiceRequest,
    replies: { 200: json(serviceSchema) },
  },
  remove: {
    operationId: "serviceAccounts.remove",
    method: "DELETE",
    path: "/api/v1/service-accounts/{name}",
    permission: "cluster:admin",
    summary: "Removes a service account without valid keys, and its roles.",
    replies: { 200: json(serviceSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
