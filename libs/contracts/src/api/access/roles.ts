import { z } from "zod";
import { GRANTABLE, ROLE_NAME } from "../../roles.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema, stateQuery, time } from "../parameters.ts";
import { PERMISSIONS } from "../permission.ts";

/** A permission, a group of them, or all. */
export const grantable = z
  .enum(
    GRANTABLE as [string, ...string[]],
    `expected "*", one of ${PERMISSIONS.join(", ")}, or a group such as models:*`,
  )
  .describe("A permission, a whole group (`models:*` or `models:admin`), or all.");

export const roleName = z
  .string()
  .regex(ROLE_NAME, "expected 1 to 32 of a-z, 0-9, `.`, `_` and `-`")
  .describe("The name of a role.");

export const setRoleRequest = z
  .strictObject({
    permissions: z.array(grantable).min(1).max(64),
    description: z.string().max(200).default(""),
  })
  .meta({ id: "RoleSettings" });

/** What a role may do, and what it is for. */
export type RoleSettings = z.input<typeof setRoleRequest>;

const roleSchema = z
  .object({
    id: z.string(),
    object: z.literal("role"),
    name: z.string(),
    description: z.string(),
    permissions: z.array(z.string()),
    shipped: z.boolean().describe("Every cluster has it, and it cannot be changed."),
    updated_at: time.nullable().describe("Null for a shipped role."),
  })
  .meta({ id: "Role", description: "A named set of permissions." });

export type RoleView = DataOf<typeof roleSchema>;

export const roleOperations = {
  list: {
    operationId: "roles.list",
    method: "GET",
    path: "/api/v1/roles",
    permission: "cluster:read",
    summary: "Lists the roles: those of every cluster, then the cluster's own.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(roleSchema)) },
  },
  get: {
    operationId: "roles.get",
    method: "GET",
    path: "/api/v1/roles/{name}",
    permission: "cluster:read",
    summary: "Shows a role.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(roleSchema) },
  },
  set: {
    operationId: "roles.set",
    method: "PUT",
    path: "/api/v1/roles/{name}",
    permission: "cluster:admin",
    summary: "Creates or replaces a role of the cluster's own.",
    headers: ["Idempotency-Key"],
    body: setRoleRequest,
    replies: { 200: json(roleSchema) },
  },
  remove: {
    operationId: "roles.remove",
    method: "DELETE",
    path: "/api/v1/roles/{name}",
    permission: "cluster:admin",
    summary: "Removes a role that nothing names.",
    replies: { 200: json(roleSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
