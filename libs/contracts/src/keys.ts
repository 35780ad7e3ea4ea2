import { z } from "zod";

const count = z.int().min(1).max(1_000_000_000);

/** What a route can ask of its caller. */
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

/** A permission, all of a group (`models:*`, or `models:admin` for the same), or all there are. */
const scope = z.enum(
  ["*", ...PERMISSIONS, ...groups.flatMap((group) => [`${group}:*`, `${group}:admin`])],
  `expected "*", one of ${PERMISSIONS.join(", ")}, or a group such as models:*`,
);

/** The part after `hdl_` that tells keys of one installation from another's. */
const environment = z
  .string()
  .regex(/^[a-z0-9]{1,16}$/, "expected 1 to 16 lower-case letters or digits")
  .default("live");

/** How long a rotated key goes on working where nothing else is said, and at most. */
const DEFAULT_OVERLAP_S = 86_400;
const MAX_OVERLAP_S = 90 * 86_400;

/** The body of POST /keys/{id}/rotate. */
export const rotateKeyRequest = z.strictObject({
  /** Seconds for which the old key still works; 0 ends it at once. */
  overlap_seconds: z.int().min(0).max(MAX_OVERLAP_S).default(DEFAULT_OVERLAP_S),
  /** When the new key ends, ISO 8601 with an offset or Z; like the old one where absent. */
  expires_at: z.iso.datetime({ offset: true }).optional(),
  environment,
});

/** The body of POST /keys. Without scopes a key may call and list models, and nothing else. */
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
