import { z } from "zod";
import { isImageReference } from "../image-reference.ts";
import { MAX_SECRET_VARIABLES, SECRET_NAME } from "./access/secrets.ts";
import { boundedRecord, fieldNamesOf } from "./parameters.ts";
import { jobConditions, jobInputs } from "./pipelines/job-inputs.ts";

/** The body of POST /jobs. Unknown fields are refused. */

/** UTF-8 has no lone surrogates. */
const wellFormed = z
  .string()
  .refine((given) => given.isWellFormed(), "expected text without lone surrogates");
/** Bidirectional controls and zero-width characters, which hide or reorder text. */
const MISLEADING =
  /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad\u180e]|\p{Zl}|\p{Zp}/u;
/** Scripts whose letters join, and the signs that join consonants of others. */
const JOINING = String.raw`\p{sc=Arab}\p{sc=Syrc}\p{sc=Nkoo}\p{sc=Mand}\p{sc=Adlm}\p{sc=Rohg}`;
const VIRAMA = String.raw`[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca\u1039\u17d2]`;
const PICTURE = String.raw`\p{Extended_Pictographic}`;
/**
 * Joiners that are part of the spelling, close to UAX #31 of Unicode: between joining letters,
 * beside a virama, and within an emoji. Elsewhere they are invisible.
 */
const WRITTEN_JOINERS = new RegExp(
  [
    String.raw`(?<=[[${JOINING}]&&[\p{L}\p{M}]])\u200c(?=[[${JOINING}]&&\p{L}])`,
    String.raw`(?<=${VIRAMA})(?:\u200c(?=\p{L})|\u200d(?![\u200c\u200d]))|(?<=\p{L})\u200d(?=${VIRAMA})`,
    String.raw`(?<=${PICTURE}[\ufe0f\u{1f3fb}-\u{1f3ff}]?)\u200d(?=${PICTURE})`,
  ].join("|"),
  "gv",
);
/** Text of one line that is shown as it is. */
const line = (max: number) =>
  wellFormed
    .max(max)
    .refine(
      (given) => !/\p{Cc}/u.test(given),
      "expected text without NUL and other control characters",
    )
    .refine(
      (given) => !MISLEADING.test(given.replace(WRITTEN_JOINERS, "")),
      "expected text without characters that turn the direction of writing or have no width",
    );
const text = (max: number) => line(max).min(1).regex(/\S/, "expected more than white space");

/** Entries of maps and lists whose names or items the caller chooses. */
const MAX_LABELS = 64;
const MAX_SELECTORS = 64;
const MAX_VARIABLES = 1_024;
const MAX_CONFIG_FIELDS = 1_024;
const MAX_CONFIG_ITEMS = 16_384;

/** Whether the value is JSON, with each map and list in it within its bound. */
function isBoundedJson(value: unknown): boolean {
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || value === null) {
    return value === null || typeof value === "string" || typeof value === "boolean";
  }
  if (Array.isArray(value)) return value.length <= MAX_CONFIG_ITEMS && value.every(isBoundedJson);
  return (
    fieldNamesOf(value).length <= MAX_CONFIG_FIELDS && Object.values(value).every(isBoundedJson)
  );
}

const boundedJson = z.custom<z.core.util.JSONType>(
  isBoundedJson,
  `expected JSON with at most ${MAX_CONFIG_FIELDS} fields in each object and ${MAX_CONFIG_ITEMS} items in each array`,
);

/** Linux accepts 128 KiB per string, and at least 2 MiB for environment and arguments. */
const MAX_STRING_BYTES = 120_000;
const MAX_ENVIRONMENT_BYTES = 192 * 1024;
const MAX_COMMAND_BYTES = 256 * 1024;

const utf8 = new TextEncoder();
/** The strings' size for the system, each with its terminator and pointer. */
function systemBytes(strings: readonly string[]): number {
  return strings.reduce((sum, each) => sum + utf8.encode(each).length + 9, 0);
}

/** System strings contain no NUL. */
const programText = wellFormed
  .refine((given) => !given.includes("\0"), "expected text without NUL characters")
  .refine(
    (given) => systemBytes([given]) <= MAX_STRING_BYTES,
    `expected at most ${MAX_STRING_BYTES} bytes of UTF-8`,
  );
const commandSchema = z.union([
  programText.min(1).regex(/\S/, "expected more than white space"),
  z
    .array(programText)
    .min(1)
    .max(1024)
    .refine((given) => /\S/.test(given[0] ?? ""), { message: "expected a program", path: [0] })
    .refine(
      (given) => systemBytes(given) <= MAX_COMMAND_BYTES,
      `expected at most ${MAX_COMMAND_BYTES} bytes of UTF-8 in all, 9 more an argument`,
    ),
]);

const variableName = z
  .string()
  .max(256)
  .regex(
    /^[A-Za-z_][A-Za-z0-9_]*$/,
    "expected a variable's name: letters, digits and `_`, with no digit first",
  )
  .regex(
    /^(?!HEDDLE_|(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)$)/,
    "HEDDLE_*, RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set by the platform",
  );
const environmentSchema = boundedRecord(variableName, programText, MAX_VARIABLES).refine(
  (given) => systemBytes(Object.entries(given).flat()) <= MAX_ENVIRONMENT_BYTES,
  `expected at most ${MAX_ENVIRONMENT_BYTES} bytes of UTF-8 in all, 18 more a variable`,
);
export const identifier = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/,
    "expected 1 to 63 of a-z, 0-9, `.`, `_`, `-`, with a letter or digit at both ends",
  );
const blockOfPlugin = z
  .string()
  .regex(
    /^[A-Za-z0-9][\w.-]{0,127}\/[a-z][a-z0-9-]{0,62}@[1-9]\d{0,5}$/,
    "expected a plugin's block, as PLUGIN/BLOCK@VERSION",
  );
/** Amounts have three decimals: less is none. */
const amount = z.number().min(0.001).max(1_000_000_000);

/** The other operators need only the key. */
const NEEDS_VALUES: ReadonlySet<string> = new Set(["in", "not_in"]);

/** Label tests as a map (each must be equal) or as Kubernetes' match expressions. */
const affinity = z.union([
  boundedRecord(text(128), line(256), MAX_SELECTORS),
  z
    .array(
      z
        .strictObject({
          key: text(128),
          operator: z.enum(["in", "not_in", "exists", "not_exists"]),
          values: z.array(line(256)).max(64).default([]),
        })
        .refine(({ operator, values }) => NEEDS_VALUES.has(operator) || values.length === 0, {
          message: "expected none: `exists` and `not_exists` ask for the key alone",
          path: ["values"],
        })
        .refine(({ operator, values }) => !NEEDS_VALUES.has(operator) || values.length > 0, {
          message: "expected at least one value for `in` and `not_in` to compare the label with",
          path: ["values"],
        }),
    )
    .max(MAX_SELECTORS),
]);

/**
 * The needs of the whole job. Amounts are divided evenly over its tasks, except device properties
 * (`gpu_type`, `gpu_memory_gb`) and `network_bandwidth_gbps`, which is per task.
 */
const resourcesSchema = z.strictObject({
  gpu_count: z
    .number()
    .min(0)
    .max(100_000)
    .default(0)
    .describe("Whole devices, or a share of one below 1 in thousandths."),
  cpu_cores: z.number().min(0.001).max(1_000_000).default(1).describe("Processor cores."),
  memory_gb: amount.default(1).describe("Memory, in 10^9 bytes."),
  gpu_type: z
    .union([text(64), z.array(text(64)).min(1).max(16)])
    .optional()
    .describe("The type, or several that will do, as `H100`."),
  gpu_memory_gb: amount.optional().describe("Memory that each device must have."),
  local_ssd_gb: amount.optional().describe("Local SSD of the nodes."),
  shared_storage_gb: amount.optional().describe("Part of the cluster setting of this name."),
  io_operations_per_sec: amount.optional().describe("Disk operations of the nodes."),
  network_bandwidth_gbps: amount.optional().describe("Network of each task."),
  infiniband_required: z.boolean().default(false).describe("Nodes of one fabric only."),
  node_affinity: affinity.optional().describe("Labels that nodes must have; see the guide."),
  node_anti_affinity: affinity.optional().describe("Labels that nodes must not have."),
  tolerations: z
    .array(text(128))
    .max(64)
    .default([])
    .describe("Taints of nodes that the job accepts."),
  same_rack: z.boolean().default(false).describe("All tasks in one rack."),
  qos_level: z
    .enum(["guaranteed", "standard", "best_effort"])
    .default("standard")
    .describe("Goes before kind and priority in the queue."),
  priority: z.int().min(-1000).max(1000).default(0).describe("Within a level, larger goes first."),
  preemptible: z.boolean().default(true).describe("May be stopped for a job of a higher level."),
});

const checkpointConfigSchema = z.strictObject({
  interval_seconds: z
    .number()
    .min(1)
    .max(604_800)
    .optional()
    .describe("Interval of checkpoint requests; absent: only before an eviction."),
  grace_seconds: z
    .number()
    .min(0)
    .max(3_600)
    .default(30)
    .describe("Grace period for a checkpoint before the task is killed."),
  keep: z.int().min(1).max(100).default(2).describe("Checkpoints kept."),
  signal: z
    .enum(["SIGUSR1", "SIGUSR2", "SIGHUP"])
    .default("SIGUSR1")
    .describe("Signal that makes a `command` checkpoint; SIGTERM makes it exit."),
});

const monitoringConfigSchema = z.strictObject({
  hang_timeout_seconds: z
    .number()
    .min(1)
    .max(604_800)
    .optional()
    .describe("The job fails as a Hang after this long without a step."),
  interval_seconds: z
    .number()
    .min(0.1)
    .max(3_600)
    .default(1)
    .describe("The minimum interval of progress reports to the masters."),
});

export const submitJobRequest = z.strictObject({
  id: z
    .string()
    .regex(/^job_[0-7][0-9A-HJKMNP-TV-Z]{25}$/, "expected `job_` and a ULID")
    .optional()
    .describe("`job_` and a ULID; created by the master if absent."),
  name: text(128).describe("Unique among the live jobs of its project."),
  project: identifier.default("default").describe("Whose quota and share it counts for."),
  queue: identifier.default("default").describe("The queue; it must exist."),
  labels: boundedRecord(text(63), line(256), MAX_LABELS)
    .default({})
    .describe("At most 64, for lists."),
  algorithm: z
    .union([identifier, blockOfPlugin])
    .optional()
    .describe(
      "A training algorithm, or a plugin's block as PLUGIN/BLOCK@VERSION, with its `config`; otherwise `command` is run.",
    ),
  config: boundedRecord(text(128), boundedJson, MAX_CONFIG_FIELDS)
    .default({})
    .describe(
      "Hyperparameters of the algorithm, or JSON for the `command`, at most 1,024 fields an object.",
    ),
  container_image: text(512)
    .refine(
      isImageReference,
      "expected an image's reference, such as `registry.example:5000/team/name:tag` or `name@sha256:…`, the name in lower case",
    )
    .optional()
    .describe("Runs the command in a container of this image."),
  container_options: z
    .strictObject({
      network: z
        .enum(["own", "host"])
        .optional()
        .describe("`host` needs the permission `jobs:privileged`."),
      read_only: z.boolean().optional().describe("The image cannot be written; `/tmp` is empty."),
      shm_gb: z
        .number()
        .min(0.001)
        .max(10_000)
        .optional()
        .describe("Size of `/dev/shm`, of the task's memory; by default 64 MiB."),
      profile: identifier
        .optional()
        .describe("Settings of Pods that workers offer by this name: accounts, volumes, secrets."),
    })
    .optional()
    .describe("Of `container_image`."),
  command: commandSchema.optional().describe("A shell command, or a program and its arguments."),
  working_directory: text(4096)
    .optional()
    .describe("Working directory; by default the task's own folder."),
  environment_variables: environmentSchema
    .default({})
    .describe("At most 1,024 and 192 KiB; names of the platform are refused."),
  secret_variables: boundedRecord(
    variableName,
    z
      .string()
      .regex(SECRET_NAME, "expected the name of a secret: 1 to 63 of a-z, 0-9, `.`, `_`, `-`"),
    MAX_SECRET_VARIABLES,
  )
    .optional()
    .describe("Variables whose values are secrets of the project, by name; at most 32."),
  dependencies: z
    .array(text(128))
    .max(256)
    .default([])
    .describe("Jobs (ids, or names in the same project) that must succeed first."),
  inputs: jobInputs
    .optional()
    .describe(
      "Files that lie in HEDDLE_INPUT_DIR at its start: artifacts of other jobs, or sources.",
    ),
  when: jobConditions
    .optional()
    .describe("Conditions on inputs; if one does not hold, the job succeeds without running."),
  resources: resourcesSchema.prefault({}),
  tasks: z
    .int()
    .min(1)
    .max(4096)
    .optional()
    .describe(
      "The gang: this many equal tasks start together. Absent: as few as the nodes' GPUs allow.",
    ),
  checkpoint_config: checkpointConfigSchema.prefault({}),
  monitoring_config: monitoringConfigSchema.prefault({}),
  max_runtime_hours: z
    .number()
    .positive()
    .max(8_784)
    .optional()
    .describe("Bound of each attempt; absent: the cluster setting `job_timeout`."),
  retry_limit: z
    .int()
    .min(0)
    .max(1000)
    .default(0)
    .describe("Retries after the job's own failures; lost nodes and preemptions use none."),
  failure_tolerance: z
    .int()
    .min(0)
    .max(4095)
    .default(0)
    .describe("Maximum simultaneously lost tasks that an attempt survives."),
});

/** Characters that follow a `generate_name`. */
export const GENERATED_CHARACTERS = 6;
/** May replace `name`: the prefix of a generated unique name. */
export const generateNameRequest = z.looseObject({
  generate_name: text(128 - GENERATED_CHARACTERS),
  name: z.undefined("expected either `name` or `generate_name`").optional(),
});

export type SubmitJob = z.output<typeof submitJobRequest>;
/** A job to submit. */
export type JobSpec = z.input<typeof submitJobRequest>;

/** Every state of a job, in lower case on the wire; the client's `phase` is in upper case. */
export const JOB_STATES = [
  "accepted",
  "pending",
  "scheduled",
  "starting",
  "running",
  "checkpointing",
  "preempted",
  "suspended",
  "recovering",
  "retrying",
  "cancelling",
  "succeeded",
  "failed",
  "cancelled",
] as const;

export type JobState = (typeof JOB_STATES)[number];
/** A state in upper case, as `RUNNING`. */
export type JobPhase = Uppercase<JobState>;

/** Why a job failed. */
export const FAILURE_REASONS = [
  "ExitCode",
  "OutOfMemory",
  "GpuOutOfMemory",
  "GpuFault",
  "NodeLost",
  "Hang",
  "DeadlineExceeded",
  "ImagePull",
  "DependencyFailed",
  "CheckpointCorrupt",
  "RetryLimitExceeded",
  "Unsatisfiable",
  "LaunchFailed",
  "StorageExceeded",
  "Internal",
] as const;

export type FailureReason = (typeof FAILURE_REASONS)[number];

/** A line of JSON that a program writes to the file in HEDDLE_PROGRESS_FILE. */
export const progressLine = z.looseObject({
  step: z.number().optional(),
  total_steps: z.number().optional(),
  progress: z.number().min(0).max(1).optional().describe("0..1; derived from the steps if absent."),
  loss: z.number().nullable().optional(),
  reward: z.number().nullable().optional(),
  tokens_per_second: z.number().optional(),
  steps_per_second: z.number().optional(),
  device: z.string().max(128).optional(),
  backend: z.string().max(128).optional(),
  bytes_pushed: z
    .number()
    .optional()
    .describe("Bytes sent to the parameter servers so far, by the node."),
  message: z.string().max(1024).optional(),
  checkpoint: line(512)
    .optional()
    .describe("A checkpoint of this step is durable in HEDDLE_CHECKPOINT_DIR."),
  checkpoint_step: z
    .number()
    .optional()
    .describe("The step of the checkpoint, if it is not `step`."),
  checkpoint_kept: z
    .boolean()
    .optional()
    .describe("This rank has stored its part of a checkpoint that another rank names."),
});
