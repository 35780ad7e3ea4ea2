import { z } from "zod";

const count = z.int().min(1).max(1_000_000_000);

/** The permissions of routes. */
const PERMISSIONS = [
  "inference:create",
  "models:read",
  "models:deploy",
  "jobs:read",
  "jobs:create",
  "jobs:cancel",
  "jobs:privileged",
  "cluster:read",
  "cluster:admin",
] as const;

export type Permission = (typeof PERMISSIONS)[number];

const groups = [...new Set(PERMISSIONS.map((permission) => permission.replace(/:.*/, "")))];

/** A permission, a whole group (`models:*` or `models:admin`), or all. */
const scope = z.enum(
  ["*", ...PERMISSIONS, ...groups.flatMap((group) => [`${group}:*`, `${group}:admin`])],
  `expected "*", one of ${PERMISSIONS.join(", ")}, or a group such as models:*`,
);

/** The part after `hdl_`, which distinguishes the keys of installations. */
const environment = z
  .string()
  .regex(/^[a-z0-9]{1,16}$/, "expected 1 to 16 lower-case letters or digits")
  .default("live");

/** The overlap of a rotated key by default, and its maximum. */
const DEFAULT_OVERLAP_S = 86_400;
const MAX_OVERLAP_S = 90 * 86_400;

/** The body of POST /keys/{id}/rotate. */
export const rotateKeyRequest = z.strictObject({
  /** Seconds for which the old key still works; 0 ends it at once. */
  overlap_seconds: z.int().min(0).max(MAX_OVERLAP_S).default(DEFAULT_OVERLAP_S),
  /** When the new key expires, ISO 8601 with an offset or Z; by default as the old one. */
  expires_at: z.iso.datetime({ offset: true }).optional(),
  environment,
});

/** The body of POST /keys. Without scopes a key may only call and list models. */
export const createKeyRequest = z.strictObject({
  name: z.string().min(1).max(200),
  scopes: z.array(scope).min(1).max(64).default(["inference:create", "models:read"]),
  /** Model ids the key may call; empty for all. */
  models: z.array(z.string().min(1).max(200)).max(1000).default([]),
  limits: z
    .strictObject({
      requests_per_minute: count.optional(),
      tokens_per_minute: count.optional(),
      concurrency: count.optional(),
    })
    .default({}),
  /** ISO 8601 with an offset or Z. */
  expires_at: z.iso.datetime({ offset: true }).optional(),
  environment,
});
