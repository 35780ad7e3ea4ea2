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

/** A kind of step, which pipelines name as `PLUGIN/NAME`. */
export interface PluginBlock<Config extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  /** A whole number. Steps of another one run again. */
  readonly version: number;
  readonly summary: string;
  readonly config: Config;
  readonly inputs?: Readonly<Record<string, BlockInput>>;
  readonly outputs?: Readonly<Record<string, BlockOutput>>;
  /** The job of a step; its inputs lie in HEDDLE_INPUT_DIR under their names. */
  job(step: {
    readonly config: z.output<Config>;
    /** Those that the step has. */
    readonly inputs: readonly string[];
  }): BlockJob | Promise<BlockJob>;
}

const portName = z.string().regex(/^[A-Za-z0-9][\w.-]{0,127}$/, "expected a file's name");
const type = z.enum(PORT_TYPES);

/** A block as data, but for its functions and its schema. */
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
});

/** The answer of a block's `job`. */
export const blockJob = z.strictObject({
  command: z.union([z.string(), z.array(z.string())]).optional(),
  container_image: z.string().optional(),
  algorithm: z.string().optional(),
  config: z.record(z.string(), z.unknown()).optional(),
});
