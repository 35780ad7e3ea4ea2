import { z } from "zod";
import { SUBJECT_KINDS, SUBJECT_NAME } from "../../roles.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { pageQuery, pageSchema, projectName, stateQuery, time } from "../parameters.ts";
import { roleName } from "./roles.ts";

const kind = z
  .enum(SUBJECT_KINDS, `expected one of ${SUBJECT_KINDS.join(", ")}`)
  .describe(
    "A user (the subject of its token), a group of users, a key (its id), or a service account.",
  );
const subject = z
  .string()
  .regex(SUBJECT_NAME, "expected 1 to 200 printable characters")
  .describe("The user's subject, the key's id, or the name of the group or service account.");
const project = projectName
  .optional()
  .describe("The only project in which the role holds; the whole cluster if absent.");

export const addBindingRequest = z
  .strictObject({ kind, subject, role: roleName, project })
  .meta({ id: "BindingSpec" });

/** Who gets which role, and where. */
export type BindingSpec = z.input<typeof addBindingRequest>;

const bindingSchema = z
  .object({
    id: z.string(),
    object: z.literal("binding"),
    kind: z.enum(SUBJECT_KINDS),
    subject: z.string(),
    role: z.string(),
    project: z.string().nullable().describe("Null for the whole cluster."),
    created_at: time,
  })
  .meta({ id: "Binding", description: "A role that a user, group, key or service account has." });

export type Binding = DataOf<typeof bindingSchema>;

export const bindingOperations = {
  list: {
    operationId: "bindings.list",
    method: "GET",
    path: "/api/v1/bindings",
    permission: "cluster:admin",
    summary: "Lists who has which role.",
    query: pageQuery.extend({
      kind: kind.optional(),
      subject: subject.optional(),
      role: roleName.optional(),
      project: project.describe("Only bindings in this project."),
    }),
    readsState: true,
    replies: { 200: json(pageSchema(bindingSchema)) },
  },
  add: {
    operationId: "bindings.add",
    method: "POST",
    path: "/api/v1/bindings",
    permission: "cluster:admin",
    summary: "Gives a role to a user, group, key or service account; repeating it changes nothing.",
    headers: ["Idempotency-Key"],
    body: addBindingRequest,
    replies: { 200: json(bindingSchema) },
  },
  remove: {
    operationId: "bindings.remove",
    method: "DELETE",
    path: "/api/v1/bindings",
    permission: "cluster:admin",
    summary: "Takes a role from a user, group, key or service account.",
    query: z.object({ kind, subject, role: roleName, project }),
    replies: { 200: json(bindingSchema) },
  },
} as const satisfies Record<string, ApiOperation>;

export const setPolicyRequest = z
  .strictObject({
    default_role: roleName
      .nullable()
      .default(null)
      .describe("The role of users without any other, in the project `default`; null for none."),
    admin_roles: z
      .array(roleName)
      .min(1)
      .max(32)
      .default(["admin"])
      .describe("Roles that, bound in the whole cluster, grant everything."),
  })
  .meta({ id: "AccessPolicySettings" });

/** The default role and the roles of administrators; absent ones get their defaults. */
export type AccessPolicySettings = z.input<typeof setPolicyRequest>;

const policySchema = z
  .object({
    object: z.literal("access_policy"),
    default_role: z.string().nullable(),
    admin_roles: z.array(z.string()),
    updated_at: time.nullable().describe("Null until it is set."),
  })
  .meta({ id: "AccessPolicy", description: "The default role and the roles of administrators." });

export type AccessPolicy = DataOf<typeof policySchema>;

const callerSchema = z
  .object({
    object: z.literal("caller"),
    id: z.string(),
    kind: z.enum(["key", "user"]),
    name: z.string(),
    project: z.string().describe("For which this call counts."),
    permissions: z.array(z.string()).describe("In that project."),
    projects: z
      .array(z.string())
      .nullable()
      .describe("Where it has permissions; null for the whole cluster."),
  })
  .meta({ id: "Caller", description: "Who calls, and what it may do." });

export type CallerView = DataOf<typeof callerSchema>;

const methodsSchema = z
  .object({
    object: z.literal("access_methods"),
    methods: z.array(z.enum(["api_key", "oauth2"])),
    oauth2: z
      .object({
        issuer: z.string(),
        client_id: z.string().nullable().describe("The public client for people."),
        audience: z.array(z.string()),
        scopes: z.array(z.string()),
        parameters: z
          .record(z.string(), z.string())
          .describe("Further members of requests to the identity provider."),
      })
      .nullable(),
  })
  .meta({ id: "AccessMethods", description: "How callers prove who they are." });

export type AccessMethods = DataOf<typeof methodsSchema>;

export const accessOperations = {
  methods: {
    operationId: "access.methods",
    method: "GET",
    path: "/api/v1/access/methods",
    permission: "public",
    summary: "Shows how callers prove who they are, and the identity provider.",
    replies: { 200: json(methodsSchema) },
  },
  policy: {
    operationId: "access.policy",
    method: "GET",
    path: "/api/v1/access/policy",
    permission: "cluster:read",
    summary: "Shows the default role and the roles of administrators.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(policySchema) },
  },
  setPolicy: {
    operationId: "access.setPolicy",
    method: "PUT",
    path: "/api/v1/access/policy",
    permission: "cluster:admin",
    summary: "Sets the default role and the roles of administrators.",
    headers: ["Idempotency-Key"],
    body: setPolicyRequest,
    replies: { 200: json(policySchema) },
  },
  whoami: {
    operationId: "access.whoami",
    method: "GET",
    path: "/api/v1/access/whoami",
    permission: "authenticated",
    summary: "Shows who calls, and what it may do.",
    replies: { 200: json(callerSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
