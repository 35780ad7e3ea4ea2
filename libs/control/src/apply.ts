import { isSettingName, settingFault } from "@heddle/contracts/settings";
import type { ControlCommand, ControlReply } from "./command.ts";
import type {
  ApiKeyRecord,
  ControlState,
  DeploymentRecord,
  KeyLimits,
  ModelRecord,
} from "./state.ts";

/** Bounds of the replicated state; a command that would pass one is refused with `conflict`. */
export const MAX_KEYS = 100_000;
const MAX_MODELS = 10_000;

/**
 * The only code that changes the replicated state. Deterministic: the reply and the new state
 * follow from the old state and the command alone. A refused command changes nothing.
 */
export function apply(state: ControlState, command: ControlCommand): ControlReply {
  switch (command.type) {
    case "key.create":
      return createKey(state, command.key);
    case "key.revoke":
      return revokeKey(state, command.id, command.atMs);
    case "model.register":
      return registerModel(state, command.model, command.deployment);
    case "model.remove":
      return removeModel(state, command.id);
    case "setting.put":
      return putSetting(state, command);
    default:
      return unknownCommand(command);
  }
}

export function emptyState(): ControlState {
  return { keys: new Map(), models: new Map(), deployments: new Map(), settings: new Map() };
}

const OK: ControlReply = { ok: true };

type Refusal = Extract<ControlReply, { ok: false }>;

function refuse(code: Refusal["code"], message: string): ControlReply {
  return { ok: false, code, message };
}

/** A newer master's command in an older log must not be skipped in silence by a reply of success. */
function unknownCommand(command: never): ControlReply {
  const type = JSON.stringify((command as { type?: unknown }).type);
  return refuse("invalid_value", `this master does not know the command ${type}; update it`);
}

function createKey(state: ControlState, key: ApiKeyRecord): ControlReply {
  const fault = keyFault(key);
  if (fault) return refuse("invalid_value", fault);
  if (state.keys.has(key.id)) return refuse("conflict", `a key with id ${key.id} exists`);
  if (state.keys.size >= MAX_KEYS) return refuse("conflict", `the cluster holds ${MAX_KEYS} keys`);
  state.keys.set(key.id, key);
  return OK;
}

function keyFault(key: ApiKeyRecord): string | undefined {
  if (!/^[0-9A-Za-z]{8}$/.test(key.id)) return "a key's id is 8 letters or digits";
  if (!/^[0-9a-f]{64}$/.test(key.hash)) return "a key's hash is 64 hexadecimal digits";
  if (key.name === "" || key.name.length > 200) return "a key's name has 1 to 200 characters";
  return limitsFault(key.limits);
}

function limitsFault(limits: KeyLimits): string | undefined {
  for (const [name, value] of Object.entries(limits)) {
    if (value !== undefined && !(Number.isSafeInteger(value) && value > 0)) {
      return `the limit ${name} must be a positive integer, got ${value}`;
    }
  }
  return undefined;
}

/**
 * Revoking a revoked key succeeds and keeps the first time, so that a retry is harmless. The last
 * key that may do everything stays: without it nobody could make another.
 */
function revokeKey(state: ControlState, id: string, atMs: number): ControlReply {
  const key = state.keys.get(id);
  if (!key) return refuse("not_found", `no key has the id ${id}`);
  if (key.revokedAtMs !== undefined) return OK;
  if (isAdminAt(key, atMs) && !hasOtherAdmin(state, id, atMs)) {
    const message = `the key ${id} is the last one in use with the scope \`*\`; create another such key first`;
    return refuse("conflict", message);
  }
  state.keys.set(id, { ...key, revokedAtMs: atMs });
  return OK;
}

function hasOtherAdmin(state: ControlState, id: string, atMs: number): boolean {
  for (const other of state.keys.values()) {
    if (other.id !== id && isAdminAt(other, atMs)) return true;
  }
  return false;
}

function isAdminAt(key: ApiKeyRecord, atMs: number): boolean {
  if (key.revokedAtMs !== undefined || !key.scopes.includes("*")) return false;
  return key.expiresAtMs === undefined || key.expiresAtMs > atMs;
}

function registerModel(
  state: ControlState,
  model: ModelRecord,
  deployment: DeploymentRecord,
): ControlReply {
  const fault = modelFault(model, deployment);
  if (fault) return refuse("invalid_value", fault);
  const known = state.models.get(model.id);
  if (known && !sameJson(known, model)) {
    return refuse("conflict", `the model ${model.id} is registered with other properties`);
  }
  const running = state.deployments.get(deployment.spec.key);
  if (running && !sameJson(running, deployment)) {
    return refuse("conflict", `the deployment ${deployment.spec.key} exists with another spec`);
  }
  if (!known && state.models.size >= MAX_MODELS) {
    return refuse("conflict", `the cluster holds ${MAX_MODELS} models`);
  }
  state.models.set(model.id, known ?? model);
  state.deployments.set(deployment.spec.key, running ?? deployment);
  return OK;
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
  const { replicas } = deployment;
  if (replicas !== "every-worker" && !(Number.isSafeInteger(replicas) && replicas >= 0)) {
    return `replicas must be a whole number or "every-worker", got ${replicas}`;
  }
  return undefined;
}

/** A deployment lives as long as a model names it. */
function removeModel(state: ControlState, id: string): ControlReply {
  const model = state.models.get(id);
  if (!model) return refuse("not_found", `no model has the id ${id}`);
  state.models.delete(id);
  for (const other of state.models.values()) {
    if (other.deployment === model.deployment) return OK;
  }
  state.deployments.delete(model.deployment);
  return OK;
}

function putSetting(
  state: ControlState,
  { name, value, ifVersion, atMs }: Extract<ControlCommand, { type: "setting.put" }>,
): ControlReply {
  if (!isSettingName(name)) return refuse("not_found", `no setting has the name ${name}`);
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

/** Equal as JSON whatever the order of the keys; absent and undefined members are the same. */
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
