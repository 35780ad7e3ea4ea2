import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { listSchema, stateQuery, time } from "./parameters.ts";

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
  unsatisfiable_wait: {
    type: "integer",
    minimum: 0,
    maximum: 1_000_000_000,
    default: 0,
    unit: "seconds",
    description: "How long a job that no present node can run waits for others before it fails.",
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
  documents: {
    type: "integer",
    minimum: 0,
    maximum: 10_000_000,
    default: 100_000,
    unit: "documents",
    description: "Stored responses, conversations, files and batches of all keys.",
  },
  documents_mib: {
    type: "integer",
    minimum: 0,
    maximum: 1_048_576,
    default: 10_240,
    unit: "MiB",
    description: "Content of all documents, which each master keeps on its disk.",
  },
  owner_documents: {
    type: "integer",
    minimum: 0,
    maximum: 10_000_000,
    default: 50_000,
    unit: "documents",
    description: "Documents of one key and its successors.",
  },
  owner_documents_mib: {
    type: "integer",
    minimum: 0,
    maximum: 1_048_576,
    default: 5_120,
    unit: "MiB",
    description: "Content of the documents of one key and its successors.",
  },
  file_mib: {
    type: "integer",
    minimum: 1,
    maximum: 1_024,
    default: 200,
    unit: "MiB",
    description: "How large one uploaded file may be.",
  },
  response_days: {
    type: "integer",
    minimum: 1,
    maximum: 3_650,
    default: 30,
    unit: "days",
    description: "How long a response is stored after its last change.",
  },
  event_days: {
    type: "integer",
    minimum: 0,
    maximum: 36_500,
    default: 0,
    unit: "days",
    description:
      "How long the event log keeps events, at least: 65,536 go at a time. 0 keeps all of them.",
  },
  event_mib: {
    type: "integer",
    minimum: 0,
    maximum: 1_073_741_824,
    default: 0,
    unit: "MiB",
    description:
      "Events that each master keeps, in whole files of 65,536; hashes of removed ones stay. 0 keeps all.",
  },
  shared_prefix_cache: {
    type: "integer",
    minimum: 0,
    maximum: 1,
    default: 0,
    unit: "0 or 1",
    description:
      "1 lets a project's calls use prompt prefixes that engines have cached for others; their latency then depends on the others' prompts.",
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

/** The setting's own bounds are checked by its name. */
const putSettingRequest = z.strictObject({ value: z.number() }).meta({ id: "SettingValue" });

const settingSchema = z
  .object({
    object: z.literal("cluster_setting"),
    name: z.enum(Object.keys(CLUSTER_SETTINGS) as [SettingName, ...SettingName[]]),
    value: z.number(),
    version: z.int().describe("`If-Match` takes it in quotes; 0 if the setting was never set."),
    default: z.number(),
    type: z.enum(["integer", "number"]),
    minimum: z.number(),
    maximum: z.number(),
    unit: z.string(),
    description: z.string(),
    updated_at: time.nullable(),
  })
  .meta({ id: "Setting", description: "A setting that all masters share." });

export type Setting = DataOf<typeof settingSchema>;

export const settingOperations = {
  list: {
    operationId: "settings.list",
    method: "GET",
    path: "/api/v1/cluster/settings",
    permission: "cluster:read",
    summary: "Lists the cluster's settings.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(listSchema(settingSchema)) },
  },
  get: {
    operationId: "settings.get",
    method: "GET",
    path: "/api/v1/cluster/settings/{name}",
    permission: "cluster:read",
    summary: "Shows one setting, with its ETag for `If-Match`.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(settingSchema) },
  },
  set: {
    operationId: "settings.set",
    method: "PUT",
    path: "/api/v1/cluster/settings/{name}",
    permission: "cluster:admin",
    summary: "Sets a setting; with `If-Match` only if it has that version.",
    headers: ["Idempotency-Key", "If-Match"],
    body: putSettingRequest,
    replies: { 200: json(settingSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
