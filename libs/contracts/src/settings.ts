import { z } from "zod";

/** The range of a cluster setting; every setting is a number. */
export interface SettingSpec {
  readonly type: "integer" | "number";
  readonly minimum: number;
  readonly maximum: number;
  /** Applies until it is set. */
  readonly default: number;
  readonly unit: string;
  readonly description: string;
}

/** The settings that all masters share, by name. */
export const CLUSTER_SETTINGS = {
  max_concurrent_jobs: {
    type: "integer",
    minimum: 1,
    maximum: 1_000_000_000,
    default: 1_000,
    unit: "jobs",
    description: "Jobs that may run at once; further ones wait in the queue.",
  },
  job_timeout: {
    type: "integer",
    minimum: 1,
    maximum: 1_000_000_000,
    default: 86_400,
    unit: "seconds",
    description: "How long a job may run that asks for no time of its own.",
  },
  overcommit_ratio: {
    type: "number",
    minimum: 0.1,
    maximum: 10,
    default: 1,
    unit: "ratio",
    description:
      "Processor cores and memory that may be promised, in multiples of what nodes have.",
  },
  shared_storage_gb: {
    type: "number",
    minimum: 0,
    maximum: 1_000_000_000,
    default: 0,
    unit: "GB",
    description: "Storage that all nodes share, for the jobs that ask for some of it.",
  },
  job_spec_kib: {
    type: "integer",
    minimum: 4,
    maximum: 4_096,
    default: 256,
    unit: "KiB",
    description: "How large the body of a job's submission may be.",
  },
  state_mib: {
    type: "integer",
    minimum: 16,
    maximum: 1_048_576,
    default: 1_024,
    unit: "MiB",
    description:
      "Memory that the masters' state may take; a change that would need more is refused.",
  },
} as const satisfies Record<string, SettingSpec>;

export type SettingName = keyof typeof CLUSTER_SETTINGS;

/** The value of a setting: as set, or its default. */
export function settingValue(
  settings: ReadonlyMap<string, { readonly value: number }>,
  name: SettingName,
): number {
  return settings.get(name)?.value ?? CLUSTER_SETTINGS[name].default;
}

export function isSettingName(name: string): name is SettingName {
  return Object.hasOwn(CLUSTER_SETTINGS, name);
}

/** Why a setting cannot have a value, as the end of a sentence; undefined if it can. */
export function settingFault(name: SettingName, value: number): string | undefined {
  const { type, minimum, maximum }: SettingSpec = CLUSTER_SETTINGS[name];
  const isKind = type === "integer" ? Number.isSafeInteger(value) : Number.isFinite(value);
  if (isKind && value >= minimum && value <= maximum) return undefined;
  return `expected ${type === "integer" ? "a whole number" : "a number"} from ${minimum} to ${maximum}`;
}

/** The body of PUT /cluster/settings/{name}; the setting's own bounds are checked by its name. */
export const putSettingRequest = z.strictObject({ value: z.number() });
