import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { PortType } from "@heddle/contracts/api/pipelines/blocks";
import { PORT_TYPES } from "@heddle/contracts/api/pipelines/blocks";
import { z } from "zod";

/** An input or output of a block: files, by what they hold. */
export interface BlockInput {
  readonly type: PortType;
  /** True by default. */
  readonly required?: boolean;
}

export interface BlockOutput {
  readonly type: PortType;
  /** The artifact that its job leaves. */
  readonly artifact: string;
}

/** What the job of a step runs: fields of a job's spec. */
export interface BlockJob {
  readonly command?: string | string[];
  readonly container_image?: string;
  readonly algorithm?: string;
  readonly config?: Record<string, unknown>;
}

/** A step as a worker runs it, in a process of its own. */
export interface BlockStep<Config = unknown, State = unknown> {
  readonly config: Config;
  /** The paths of its inputs by name; of several shards `NAME.0`, `NAME.1` and so on. */
  readonly inputs: Readonly<Record<string, string>>;
  /** What it last yielded as `checkpoint`, in an earlier attempt too; undefined at its first start. */
  readonly resumeFrom: State | undefined;
  /** Aborts when the task must leave; the process is killed some seconds later. */
  readonly signal: AbortSignal;
}

/** What a step yields; any of these. What it has yielded before the next one is kept. */
export interface BlockUpdate<State = unknown> {
  /** The abscissa of metrics; by default one more than that of the last update. */
  readonly step?: number | undefined;
  /** From 0 to 1. */
  readonly progress?: number | undefined;
  readonly message?: string | undefined;
  readonly metrics?: Readonly<Record<string, number>> | undefined;
  /** JSON, by the schema `resume`. */
  readonly checkpoint?: State | undefined;
  /** Keyed by the block's outputs: a text, bytes, or JSON. */
  readonly outputs?: Readonly<Record<string, unknown>> | undefined;
}

/** A kind of step, which pipelines name as `PLUGIN/NAME`; it has either `job` or `run`. */
export interface PluginBlock<
  Config extends z.ZodObject = z.ZodObject,
  Resume extends z.ZodType = z.ZodType,
> {
  readonly name: string;
  /** A whole number. Steps of another one run again. */
  readonly version: number;
  readonly summary: string;
  readonly config: Config;
  readonly inputs?: Readonly<Record<string, BlockInput>>;
  readonly outputs?: Readonly<Record<string, BlockOutput>>;
  /** The resources of steps that give none: fields as of a job. */
  readonly resources?: NonNullable<z.input<typeof submitJobRequest>["resources"]>;
  /** The schema of its checkpoints. Without one each attempt starts from the beginning. */
  readonly resume?: Resume;
  /** The job of a step; its inputs lie in HEDDLE_INPUT_DIR under their names. */
  job?(step: {
    readonly config: z.output<Config>;
    /** The inputs that the step has. */
    readonly inputs: readonly string[];
  }): BlockJob | Promise<BlockJob>;
  /** Runs the step as a task of a worker that has the plugin. It returns when the step is done. */
  run?(
    step: BlockStep<z.output<Config>, z.output<Resume>>,
  ): AsyncIterable<BlockUpdate<z.input<Resume>>>;
}

const portName = z.string().regex(/^[A-Za-z0-9][\w.-]{0,127}$/, "expected a file's name");
const type = z.enum(PORT_TYPES);

/** A block as data, but for its functions and its schemas. */
export const blockShape = z.object({
  name: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,62}$/, "expected a-z, 0-9 and `-`, with a letter first"),
  version: z.int().min(1).max(999_999),
  summary: z.string().min(1).max(1_000),
  inputs: z
    .record(portName, z.strictObject({ type, required: z.boolean().default(true) }))
    .default({}),
  outputs: z
    .record(portName, z.strictObject({ type, artifact: z.string().min(1).max(256) }))
    .default({}),
  resources: submitJobRequest.shape.resources.unwrap().optional(),
});

/** The answer of a block's `job`. */
export const blockJob = z.strictObject({
  command: z.union([z.string(), z.array(z.string())]).optional(),
  container_image: z.string().optional(),
  algorithm: z.string().optional(),
  config: z.record(z.string(), z.unknown()).optional(),
});

const MAX_MESSAGE = 1_024;
/** The most metrics of one update; a job has as many in all. */
const MAX_METRICS = 64;
/** What a line of progress says itself. */
const RESERVED =
  /^(step|total_steps|progress|message|device|backend|checkpoint|checkpoint_step|checkpoint_kept)$/;
const metricName = z
  .string()
  .regex(/^[A-Za-z_][\w./-]{0,63}$/, "expected letters, digits, `_`, `.`, `/` and `-`, at most 64")
  .refine((name) => !RESERVED.test(name), "it is no name of a metric");

/** What a step yields. */
export const blockUpdate = z.strictObject({
  step: z.int().min(0).optional(),
  progress: z.number().min(0).max(1).optional(),
  message: z.string().max(MAX_MESSAGE).optional(),
  metrics: z
    .record(metricName, z.number())
    .refine((given) => Object.keys(given).length <= MAX_METRICS, `expected at most ${MAX_METRICS}`)
    .optional(),
  checkpoint: z.unknown().optional(),
  outputs: z.record(z.string(), z.unknown()).optional(),
});
