import { AppError } from "@heddle/base/errors";
import { isJsonObject } from "@heddle/base/json-object";
import { RequestFaults, type ValidationFault } from "./validation.ts";

/** A config by field name, before validation. */
type Given = ReadonlyMap<string, unknown>;

/** Names of Stable-Baselines3 and CleanRL that differ from ours. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ["env", "environment"],
  ["env_id", "environment"],
  ["n_envs", "num_envs"],
  ["n_steps", "num_steps"],
  ["n_epochs", "update_epochs"],
  ["clip_range", "clip_coef"],
  ["normalize_advantage", "norm_adv"],
  ["norm_obs", "normalize_observations"],
  ["norm_reward", "normalize_rewards"],
]);

/**
 * A `ppo` job's config under our names; a non-object is unchanged. Throws an AppError
 * `invalid_value` with the field in `param`. The reasons are two names for one field, and an
 * inconsistent minibatch size or range of values.
 */
export function resolvePpoAliases(config: unknown): unknown {
  if (!isJsonObject(config)) return config;
  const resolved = new Map<string, unknown>();
  const givenAs = new Map<string, string>();
  const entries = Object.entries(config);
  // Our own names first, so that a duplicate's error names the alias.
  const ordered = entries.toSorted(([a], [b]) => Number(ALIASES.has(a)) - Number(ALIASES.has(b)));
  for (const [name, value] of ordered) {
    const field = ALIASES.get(name) ?? name;
    const first = givenAs.get(field);
    if (first !== undefined)
      throw refused(name, `it is another name of ${first}: give one of them`);
    givenAs.set(field, name);
    resolved.set(field, value);
  }
  const ranged = withValueRange(resolved);
  return Object.fromEntries(withMinibatches(ranged));
}

/** One range clips policy and value here; null means that the value's error is not clipped. */
function withValueRange(given: Given): Given {
  const rest = new Map(given);
  const range = rest.get("clip_range_vf");
  if (!rest.delete("clip_range_vf") || range === undefined) return rest;
  const coefficient = rest.get("clip_coef") ?? DEFAULTS.clip_coef;
  if (range !== null && range !== coefficient) {
    const why = `one range clips policy and value: use clip_coef ${String(coefficient)}, or null`;
    throw refused("clip_range_vf", why);
  }
  if (rest.get("clip_vloss") === undefined) rest.set("clip_vloss", range !== null);
  return rest;
}

/** `batch_size` is the size of a minibatch, as in Stable-Baselines3. */
function withMinibatches(given: Given): Given {
  const rest = new Map(given);
  const size = rest.get("batch_size");
  if (!rest.delete("batch_size") || size === undefined) return rest;
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 1) {
    throw refused("batch_size", `expected a whole number from 1, not ${JSON.stringify(size)}`);
  }
  if (rest.get("num_minibatches") !== undefined) {
    throw refused("batch_size", "num_minibatches says the same: give one of them");
  }
  const environments = rest.get("num_envs") ?? DEFAULTS.num_envs;
  const steps = rest.get("num_steps") ?? DEFAULTS.num_steps;
  // A non-number is refused under its own name.
  if (typeof environments !== "number" || typeof steps !== "number") return rest;
  const batch = environments * steps;
  if (Number.isInteger(batch) && batch > 0 && batch % size !== 0) {
    throw refused("batch_size", `num_envs * num_steps = ${batch} must be a multiple of it`);
  }
  if (Number.isInteger(batch) && batch > 0) rest.set("num_minibatches", batch / size);
  return rest;
}

/** Defaults of the fields that decide what an alias means. */
const DEFAULTS = { clip_coef: 0.2, num_envs: 4, num_steps: 128 };

function refused(field: string, why: string): AppError {
  const param = `config.${field}`;
  const message = `Invalid value for '${param}': ${why}.`;
  const fault: ValidationFault = { param, path: ["config", field], code: "invalid_value", message };
  return new AppError("invalid_value", message, { param, cause: new RequestFaults([fault]) });
}
