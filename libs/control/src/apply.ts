import { isSettingName, type SettingName, settingFault } from "@heddle/contracts/api/settings";
import { isRole } from "./access/access-changes.ts";
import {
  AWAITS_NODES,
  BINDS_ROLES,
  HARDENED,
  HAS_SERVICES,
  LIMITS_SUBJECTS,
  NAMES_OWNERS,
  RECORDS_EVENTS,
  REMOVES_EVENTS,
  REVOKES_NODES,
  SALTS_CACHES,
  STORES_DOCUMENTS,
  versionOf,
} from "./cluster-version.ts";
import { ACCEPTED, type CatalogCommand, type ControlReply, refuse } from "./command.ts";
import { isInUse } from "./ended-keys.ts";
import { limitsFault, setLimits } from "./limits.ts";
import { modelKey, projectOfModel } from "./model-names.ts";
import { configureDeployment, scaleDeployment, scalingFault } from "./model-scaling.ts";
import { revokeNode } from "./revocations.ts";
import type { ApiKeyRecord, ControlState, DeploymentRecord, ModelRecord } from "./state.ts";
import { messagesAt } from "./state-messages.ts";
import { putUsage } from "./usage.ts";

/** Bounds of the replicated state. A command that would exceed one is refused with `conflict`. */
export const MAX_KEYS = 100_000;
const MAX_MODELS = 10_000;
const MAX_JOINS = 1_000;
/** The cluster version from which on a setting exists. */
const SETTINGS_SINCE: Readonly<Record<SettingName, number>> = {
  max_concurrent_jobs: 1,
  job_timeout: 1,
  overcommit_ratio: 1,
  shared_storage_gb: 1,
  job_spec_kib: HARDENED,
  state_mib: HARDENED,
  documents: STORES_DOCUMENTS,
  documents_mib: STORES_DOCUMENTS,
  owner_documents: STORES_DOCUMENTS,
  owner_documents_mib: STORES_DOCUMENTS,
  response_days: STORES_DOCUMENTS,
  file_mib: STORES_DOCUMENTS,
  shared_prefix_cache: SALTS_CACHES,
  event_days: REMOVES_EVENTS,
  event_mib: REMOVES_EVENTS,
  unsatisfiable_wait: AWAITS_NODES,
};
/** How many removed models are remembered; the oldest entry is dropped first. */
const MAX_REMOVED_MODELS = 1_000;

/**
 * The only code that changes keys and models; jobs and nodes change in
 * jobs/commands/jobs-state-machine.ts, documents in documents/documents-state-machine.ts.
 * - Deterministic: reply and new state follow from the old state and the command alone.
 * - A refused command changes nothing.
 * - A rule that differs between cluster versions checks `versionOf(state)`.
 */
export function apply(state: ControlState, command: CatalogCommand): ControlReply {
  switch (command.type) {
    case "key.create":
      return createKey(state, command.key);
    case "key.revoke":
      return revokeKey(state, command.id, command.atMs);
    case "key.rotate":
      return rotateKey(state, command);
    case "model.register":
      return registerModel(state, command);
    case "model.remove":
      return removeModel(state, command);
    case "deployment.scale":
      return scaleDeployment(state, command);
    case "deployment.configure":
      return configureDeployment(state, command);
    case "limits.set":
      return versionOf(state) < LIMITS_SUBJECTS
        ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
        : setLimits(state, command);
    case "usage.put":
      return versionOf(state) < LIMITS_SUBJECTS
        ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
        : putUsage(state, command);
    case "setting.put":
      return putSetting(state, command);
    case "join.create":
      return createJoin(state, command);
    case "join.use":
      return applyJoin(state, command);
    case "node.revoke":
      return versionOf(state) < REVOKES_NODES
        ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
        : revokeNode(state.cluster, command);
    default:
      return unknownRefusal(
        `the command ${JSON.stringify((command as CatalogCommand).type)}`,
        state,
      );
  }
}

export function emptyState(): ControlState {
  return {
    keys: new Map(),
    models: new Map(),
    deployments: new Map(),
    removedModels: new Map(),
    settings: new Map(),
    limits: new Map(),
    usage: new Map(),
    joins: new Map(),
    jobs: new Map(),
    specs: new Map(),
    tasks: new Map(),
    nodes: new Map(),
    projects: new Map(),
    queues: new Map(),
    replicas: new Map(),
    stageClaims: new Map(),
    events: new Map(),
    servers: new Map(),
    documents: new Map(),
    roles: new Map(),
    bindings: new Map(),
    access: new Map(),
    services: new Map(),
    secrets: new Map(),
    endedSessions: new Map(),
    sessionTokens: new Map(),
    webhooks: new Map(),
    webhookProgress: new Map(),
    subjects: new Map(),
    subjectKeys: new Map(),
    eventNames: new Map(),
    eventStreams: new Map(),
    cluster: new Map(),
  };
}

/**
 * Handles an entry or command that this build does not know. From HARDENED on it throws: proposers
 * raise the version first, so continuing would diverge from the other masters.
 */
export function unknownRefusal(what: string, state: Pick<ControlState, "cluster">): ControlReply {
  const message = `this master does not know ${what}; update it`;
  if (versionOf(state) >= HARDENED) throw new Error(message);
  return refuse("invalid_value", message);
}

function createKey(state: ControlState, key: ApiKeyRecord): ControlReply {
  const fault = keyFault(key, versionOf(state));
  if (fault) return refuse("invalid_value", fault);
  if (versionOf(state) >= BINDS_ROLES && key.role !== undefined && !isRole(state, key.role)) {
    return refuse("not_found", `no role has the name ${key.role}`, "role");
  }
  const isOfUnknown = key.service !== undefined && !state.services.has(key.service);
  if (versionOf(state) >= HAS_SERVICES && isOfUnknown) {
    return refuse("not_found", `no service account has the name ${key.service}`, "service_account");
  }
  if (state.keys.has(key.id)) return refuse("conflict", `a key with id ${key.id} exists`);
  if (state.keys.size >= MAX_KEYS) return refuse("conflict", `the cluster holds ${MAX_KEYS} keys`);
  state.keys.set(key.id, key);
  return ACCEPTED;
}

function keyFault(key: ApiKeyRecord, version: number): string | undefined {
  if (!/^[0-9A-Za-z]{8}$/.test(key.id)) return "a key's id is 8 letters or digits";
  if (key.rotatedFrom === key.id) return "a key is not rotated from itself";
  if (!/^[0-9a-f]{64}$/.test(key.hash)) return "a key's hash is 64 hexadecimal digits";
  if (key.name === "" || key.name.length > 200) return "a key's name has 1 to 200 characters";
  return limitsFault(key.limits, version);
}

/**
 * Revoking a revoked key succeeds and keeps the first time, so a retry is safe. The last key with
 * all permissions stays: without it no further key could be created.
 */
function revokeKey(state: ControlState, id: string, atMs: number): ControlReply {
  const key = state.keys.get(id);
  if (!key) return refuse("not_found", `no key has the id ${id}`);
  if (key.revokedAtMs !== undefined) return ACCEPTED;
  if (isAdminAt(key, atMs, versionOf(state)) && !hasOtherAdmin(state, id, atMs)) {
    const message = `the key ${id} is the last one in use with the scope \`*\`; create another such key first`;
    return refuse("conflict", message);
  }
  state.keys.set(id, { ...key, revokedAtMs: atMs });
  return ACCEPTED;
}

/** The new key has the old one's permissions, and both are valid for a while. */
function rotateKey(
  state: ControlState,
  { id, key, atMs, expiresAtMs }: CatalogCommand & { readonly type: "key.rotate" },
): ControlReply {
  const old = state.keys.get(id);
  if (!old) return refuse("not_found", `no key has the id ${id}`);
  if (old.revokedAtMs !== undefined) {
    return refuse("conflict", `the key ${id} is revoked: create another`);
  }
  if (old.expiresAtMs !== undefined && old.expiresAtMs <= atMs) {
    return refuse("conflict", `the key ${id} has expired: create another`);
  }
  if (!(Number.isSafeInteger(expiresAtMs) && expiresAtMs >= atMs)) {
    return refuse("invalid_value", messagesAt(versionOf(state)).expiredRotation(id));
  }
  const taken = key.rotatedFrom === undefined ? undefined : successorOf(state, id, atMs);
  if (taken) {
    const message = `the key ${id} was rotated before: the key ${taken} has taken its place and is in use; rotate that one, or revoke it first`;
    return refuse("conflict", message);
  }
  const reply = createKey(state, key);
  if (!reply.ok) return reply;
  const endsAtMs = Math.min(expiresAtMs, old.expiresAtMs ?? expiresAtMs);
  state.keys.set(id, { ...old, expiresAtMs: endsAtMs });
  return ACCEPTED;
}

/** The active key that replaced another. */
function successorOf({ keys }: ControlState, id: string, atMs: number): string | undefined {
  for (const key of keys.values()) {
    if (key.rotatedFrom === id && isInUse(key, atMs)) return key.id;
  }
  return undefined;
}

function hasOtherAdmin(state: ControlState, id: string, atMs: number): boolean {
  for (const other of state.keys.values()) {
    if (other.id !== id && isAdminAt(other, atMs, versionOf(state))) return true;
  }
  return false;
}

/**
 * From BINDS_ROLES on, a key that is bound to a project is none of the whole cluster. Keys of service
 * accounts do not count: these can be disabled.
 */
function isAdminAt(key: ApiKeyRecord, atMs: number, version: number): boolean {
  const isOfCluster = version < BINDS_ROLES || key.project === undefined;
  const isOwn = key.service === undefined;
  return isOfCluster && isOwn && key.scopes.includes("*") && isInUse(key, atMs);
}

function registerModel(
  state: ControlState,
  { model, deployment, replaces }: CatalogCommand & { readonly type: "model.register" },
): ControlReply {
  const fault = modelFault(model, deployment) ?? scalingFault(state, deployment);
  if (fault) return refuse("invalid_value", fault);
  const key = modelKey(state, model.id, model.project);
  const known = state.models.get(key);
  const isChange = known !== undefined && !sameJson(known, model);
  const hidden = key === model.id ? undefined : state.models.get(model.id);
  if (hidden || (isChange && !(replaces && isReplaceable(state, known, model)))) {
    return refuse("conflict", `the model ${model.id} is registered with other properties`);
  }
  const running = state.deployments.get(deployment.spec.key);
  if (running && !sameJson(fixedOf(running), fixedOf(deployment))) {
    return refuse("conflict", `the deployment ${deployment.spec.key} exists with another spec`);
  }
  if (!known && state.models.size >= MAX_MODELS) {
    return refuse("conflict", `the cluster holds ${MAX_MODELS} models`);
  }
  state.models.set(key, isChange ? model : (known ?? model));
  if (key === model.id) state.removedModels.delete(key);
  state.deployments.set(deployment.spec.key, running ?? deployment);
  if (isChange) dropUnused(state, known.deployment);
  return ACCEPTED;
}

/** A trained model gives way to one of its own project; before RECORDS_EVENTS to one of any. */
function isReplaceable(state: ControlState, { lineage }: ModelRecord, next: ModelRecord): boolean {
  if (!lineage) return false;
  return versionOf(state) < RECORDS_EVENTS || lineage.project === next.lineage?.project;
}

/** The part of an autoscaled deployment that only a user changes. */
function fixedOf(record: DeploymentRecord): Partial<DeploymentRecord> {
  const { spec, resources, scaling } = record;
  return scaling ? { spec, resources, scaling } : record;
}

/** A deployment lives as long as a model names it. */
function dropUnused({ models, deployments, stageClaims }: ControlState, key: string): void {
  for (const { deployment } of models.values()) if (deployment === key) return;
  deployments.delete(key);
  stageClaims.delete(key);
}

function modelFault(model: ModelRecord, deployment: DeploymentRecord): string | undefined {
  if (!/^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/.test(model.id)) {
    return "a model's id has 1 to 200 letters, digits, `.`, `_`, `:`, `/` or `-`";
  }
  if (model.deployment !== deployment.spec.key) {
    return `the model names the deployment ${model.deployment}, not ${deployment.spec.key}`;
  }
  if (!(Number.isSafeInteger(model.contextWindow) && model.contextWindow > 0)) {
    return `the context window must be a positive integer, got ${model.contextWindow}`;
  }
  return undefined;
}

function removeModel(
  state: ControlState,
  { id, project, atMs, isReplaced }: CatalogCommand & { readonly type: "model.remove" },
): ControlReply {
  const key = modelKey(state, id, project);
  const model = state.models.get(key);
  if (!model) return refuse("not_found", `no model has the id ${id}`);
  state.models.delete(key);
  if (!isReplaced && key === id) remember(state, id, atMs);
  dropUnused(state, model.deployment);
  forgetFailures(state, model.deployment);
  return removedFrom(state, projectOfModel(model));
}

/** The reply to a removal, whose event names the project. */
export function removedFrom(
  state: Pick<ControlState, "cluster">,
  project: string | undefined,
): ControlReply {
  return project === undefined || versionOf(state) < NAMES_OWNERS
    ? ACCEPTED
    : { ok: true, project };
}

/**
 * Removes the failed replicas of a deployment that no model names. A later deployment of the same
 * name starts without them.
 */
function forgetFailures({ deployments, replicas }: ControlState, deployment: string): void {
  if (deployments.has(deployment)) return;
  for (const [key, place] of replicas) {
    if (place.failure && place.deployment === deployment) replicas.delete(key);
  }
}

function remember({ removedModels }: ControlState, id: string, atMs: number): void {
  const [oldest] = removedModels.keys();
  if (oldest !== undefined && removedModels.size >= MAX_REMOVED_MODELS)
    removedModels.delete(oldest);
  removedModels.set(id, { atMs });
}

function putSetting(
  state: ControlState,
  { name, value, ifVersion, atMs }: Extract<CatalogCommand, { type: "setting.put" }>,
): ControlReply {
  if (!isSettingName(name) || versionOf(state) < SETTINGS_SINCE[name]) {
    return refuse("not_found", `no setting has the name ${name}`);
  }
  const fault = settingFault(name, value);
  if (fault) return refuse("invalid_value", `${name}: ${fault}, got ${value}`);
  const version = state.settings.get(name)?.version ?? 0;
  if (ifVersion !== undefined && ifVersion !== version) {
    const message = `the setting ${name} has the version ${version}, not ${ifVersion}; read it again`;
    return refuse("precondition_failed", message);
  }
  state.settings.set(name, { value, version: version + 1, updatedAtMs: atMs });
  return { ok: true, version: version + 1 };
}

/** Expired tokens are removed when one is added, so the bound counts valid tokens only. */
function createJoin(
  state: ControlState,
  { id, join, atMs }: Extract<CatalogCommand, { type: "join.create" }>,
): ControlReply {
  if (!/^[0-9a-f]{64}$/.test(id)) return refuse("invalid_value", "a join's id is a SHA-256");
  if (!(join.expiresAtMs > atMs)) return refuse("invalid_value", "the join has expired already");
  for (const [known, { expiresAtMs }] of [...state.joins]) {
    if (expiresAtMs <= atMs) state.joins.delete(known);
  }
  if (state.joins.has(id)) return refuse("conflict", "the join token exists");
  if (state.joins.size >= MAX_JOINS) {
    return refuse("conflict", `the cluster holds ${MAX_JOINS} unused join tokens`);
  }
  state.joins.set(id, join);
  return ACCEPTED;
}

/** The refusal does not say what is wrong with a token. */
function applyJoin(
  state: ControlState,
  { id, role, atMs }: Extract<CatalogCommand, { type: "join.use" }>,
): ControlReply {
  const join = state.joins.get(id);
  if (!join || join.expiresAtMs <= atMs || join.role !== role) {
    const message = `the join token is unknown, used, expired, or not for a ${role}`;
    return refuse("not_found", message);
  }
  state.joins.delete(id);
  return ACCEPTED;
}

/** Compares as JSON, regardless of key order; absent and undefined members are equal. */
function sameJson(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || !left || !right) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const a = left as Record<string, unknown>;
  const b = right as Record<string, unknown>;
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].every((key) =>
    sameJson(a[key], b[key]),
  );
}
