import type { ApiKeyRecord } from "@heddle/control/state";

/** An API key as the orchestration API shows it; times are ISO 8601 UTC. */
export interface KeyView {
  readonly id: string;
  readonly object: "api_key";
  readonly name: string;
  readonly scopes: readonly string[];
  readonly models: readonly string[];
  /** The `models` without a registration; the key may call them once they are registered. */
  readonly unknown_models: readonly string[];
  readonly limits: {
    readonly requests_per_minute: number | null;
    readonly tokens_per_minute: number | null;
    readonly concurrency: number | null;
  };
  readonly status: "active" | "expired" | "revoked";
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  /** The id of the key that it replaced, and of the last one that replaced it. */
  readonly rotated_from: string | null;
  readonly rotated_to: string | null;
  /** By this master's record since its start; null for none. */
  readonly last_used_at: string | null;
}

/** What a key's view needs besides its record. */
interface KeyContext {
  readonly lastUsedAtMs?: number | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** The registered models, by id. */
  readonly registered: ReadonlyMap<string, unknown>;
  /** Of every rotated key, its last replacement. */
  readonly rotatedTo: ReadonlyMap<string, string>;
}

/** By key, its last replacement. */
export function successors(keys: Iterable<ApiKeyRecord>): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { id, rotatedFrom } of keys) {
    if (rotatedFrom !== undefined) found.set(rotatedFrom, id);
  }
  return found;
}

export function viewKey(key: ApiKeyRecord, context: KeyContext): KeyView {
  const { lastUsedAtMs, now, registered, rotatedTo } = context;
  return {
    id: key.id,
    object: "api_key",
    name: key.name,
    scopes: key.scopes,
    models: key.models,
    unknown_models: key.models.filter((id) => !registered.has(id)),
    limits: {
      requests_per_minute: key.limits.requestsPerMinute ?? null,
      tokens_per_minute: key.limits.tokensPerMinute ?? null,
      concurrency: key.limits.concurrency ?? null,
    },
    status: statusOf(key, now),
    created_at: new Date(key.createdAtMs).toISOString(),
    expires_at: isoOrNull(key.expiresAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
    rotated_from: key.rotatedFrom ?? null,
    rotated_to: rotatedTo.get(key.id) ?? null,
    last_used_at: isoOrNull(lastUsedAtMs),
  };
}

function statusOf(key: ApiKeyRecord, now: number): KeyView["status"] {
  if (key.revokedAtMs !== undefined) return "revoked";
  return key.expiresAtMs !== undefined && key.expiresAtMs <= now ? "expired" : "active";
}

function isoOrNull(atMs: number | undefined): string | null {
  return atMs === undefined ? null : new Date(atMs).toISOString();
}
