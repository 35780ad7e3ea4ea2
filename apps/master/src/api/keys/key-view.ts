import type { ApiKey } from "@heddle/contracts/api/keys";
import { isOfDisabledService } from "@heddle/control/access/service-changes";
import type { ApiKeyRecord, ControlState } from "@heddle/control/state";
import { DEFAULT_PROJECT } from "../../http/limits/call-reservation.ts";
import { viewLimits } from "../limits/limits-view.ts";

/** What a key's view needs besides its record. */
interface KeyContext {
  readonly lastUsedAtMs?: number | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** The service accounts, by name. */
  readonly services: ControlState["services"];
  /** The registered models, by id. */
  readonly registered: ReadonlyMap<string, unknown>;
  /** The last replacement of every rotated key. */
  readonly rotatedTo: ReadonlyMap<string, string>;
}

/** The last replacement of each key. */
export function successors(keys: Iterable<ApiKeyRecord>): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { id, rotatedFrom } of keys) {
    if (rotatedFrom !== undefined) found.set(rotatedFrom, id);
  }
  return found;
}

export function viewKey(key: ApiKeyRecord, context: KeyContext): ApiKey {
  const { lastUsedAtMs, registered, rotatedTo } = context;
  return {
    id: key.id,
    object: "api_key",
    name: key.name,
    role: key.role ?? null,
    owner: key.owner ?? null,
    service_account: key.service ?? null,
    scopes: key.scopes,
    models: key.models,
    unknown_models: key.models.filter((id) => !registered.has(id)),
    project: key.project ?? DEFAULT_PROJECT,
    limits: viewLimits(key.limits),
    deterministic: key.deterministic ?? false,
    status: statusOf(key, context),
    created_at: new Date(key.createdAtMs).toISOString(),
    expires_at: isoOrNull(key.expiresAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
    rotated_from: key.rotatedFrom ?? null,
    rotated_to: rotatedTo.get(key.id) ?? null,
    last_used_at: isoOrNull(lastUsedAtMs),
  };
}

function statusOf(
  key: ApiKeyRecord,
  { now, services }: Pick<KeyContext, "now" | "services">,
): ApiKey["status"] {
  if (key.revokedAtMs !== undefined) return "revoked";
  if (key.expiresAtMs !== undefined && key.expiresAtMs <= now) return "expired";
  return isOfDisabledService({ services }, key) ? "disabled" : "active";
}

function isoOrNull(atMs: number | undefined): string | null {
  return atMs === undefined ? null : new Date(atMs).toISOString();
}
