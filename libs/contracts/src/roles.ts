import { PERMISSIONS, type Permission } from "./api/permission.ts";

/** A named set of permissions. */
interface ShippedRole {
  readonly description: string;
  /** Permissions, `jobs:*` for a group, or `*` for all. */
  readonly permissions: readonly string[];
}

/** The roles that every cluster has; they cannot be changed. */
export const SHIPPED_ROLES = {
  viewer: {
    description: "Reads jobs, models, files, batches and the cluster's state.",
    permissions: ["jobs:read", "models:read", "files:read", "batches:read", "cluster:read"],
  },
  developer: {
    description: "Calls models, and submits, reads and cancels jobs.",
    permissions: [
      "inference:create",
      "models:read",
      "files:*",
      "batches:*",
      "jobs:read",
      "jobs:create",
      "jobs:cancel",
      "secrets:read",
      "secrets:use",
      "events:create",
      "cluster:read",
    ],
  },
  operator: {
    description: "Does what a developer does, deploys models, and sets priorities and secrets.",
    permissions: [
      "inference:*",
      "models:*",
      "files:*",
      "batches:*",
      "jobs:*",
      "secrets:*",
      "events:*",
      "cluster:read",
    ],
  },
  admin: { description: "Does everything.", permissions: ["*"] },
} as const satisfies Record<string, ShippedRole>;

/** The roles that are administrators until an access policy says otherwise. */
export const SHIPPED_ADMIN_ROLES: readonly string[] = ["admin"];

/** Who a role is bound to: a user's subject, a group of its token, a key's id, a service account. */
export const SUBJECT_KINDS = ["user", "group", "key", "service"] as const;
export type SubjectKind = (typeof SUBJECT_KINDS)[number];

/** Permissions over what projects have; all others are of the whole cluster. */
export const PROJECT_PERMISSIONS: readonly Permission[] = [
  "inference:create",
  "batches:read",
  "batches:write",
  "files:read",
  "files:write",
  "models:read",
  "jobs:read",
  "jobs:create",
  "jobs:cancel",
  "secrets:read",
  "secrets:use",
  "secrets:write",
  "events:read",
  "events:create",
];

const groups = [...new Set(PERMISSIONS.map((permission) => permission.replace(/:.*/, "")))];

/** Everything that a role or a key may hold: permissions, groups of them, and all. */
export const GRANTABLE: readonly string[] = [
  "*",
  ...PERMISSIONS,
  ...groups.flatMap((group) => [`${group}:*`, `${group}:admin`]),
];

/** The name of a role: 1 to 32 characters. */
export const ROLE_NAME = /^[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?$/;
/** The name of a project: 1 to 63 characters. */
export const PROJECT_NAME = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/;
/** The name of a service account: 1 to 63 characters. */
export const SERVICE_NAME = PROJECT_NAME;
/** A subject's name, as an identity provider writes it: printable, and no space at its ends. */
export const SUBJECT_NAME =
  /^[\x21-\x7e\u00a1-\uffff]([\x20-\x7e\u00a1-\uffff]{0,198}[\x21-\x7e\u00a1-\uffff])?$/;
