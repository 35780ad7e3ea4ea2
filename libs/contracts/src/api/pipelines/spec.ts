import { z } from "zod";
import { identifier, submitJobRequest } from "../job-spec.ts";
import { boundedRecord } from "../parameters.ts";
import { inputName, jobConditions } from "./job-inputs.ts";

/** Steps of one pipeline, and the shards of one step. */
const MAX_STEPS = 100;
const MAX_SHARDS = 64;
const MAX_NAME = 80;

const stepName = z
  .string()
  .regex(/^[a-z][a-z0-9-]{0,30}$/, "expected 1 to 31 of a-z, 0-9 and `-`, with a letter first");

/** Where an input comes from: an output of a step, as `train.model`. */
const edge = z
  .string()
  .max(200)
  .regex(/^[a-z][a-z0-9-]*\.[A-Za-z0-9][A-Za-z0-9._-]*$/, "expected STEP.OUTPUT, as train.model");

const {
  resources,
  environment_variables,
  secret_variables,
  retry_limit,
  max_runtime_hours,
  tasks,
} = submitJobRequest.shape;

const step = z.strictObject({
  block: z
    .string()
    .regex(
      /^([A-Za-z0-9][\w.-]{0,127}\/)?[a-z][a-z0-9-]{0,62}(@\d{1,6})?$/,
      "expected a block's name, as `shell`, `shell@1` or `PLUGIN/BLOCK`",
    )
    .describe("What runs: a block, with or without its version; a plugin's as `PLUGIN/BLOCK`."),
  config: z.record(z.string().max(128), z.unknown()).default({}).describe("By the block's schema."),
  inputs: z
    .record(inputName, edge)
    .default({})
    .describe("By the block's input: the output of an earlier step, as `train.model`."),
  after: z
    .array(stepName)
    .max(MAX_STEPS)
    .default([])
    .describe("Steps that must succeed, or be skipped, first."),
  when: jobConditions
    .default([])
    .describe(
      "Conditions on inputs; if one does not hold, the step and those with its outputs are skipped.",
    ),
  shards: z
    .union([
      z.int().min(1).max(MAX_SHARDS),
      z.array(z.string().min(1).max(256)).min(1).max(MAX_SHARDS),
    ])
    .optional()
    .describe(
      "Runs it once for each shard: a number of them, or their names. Its variables PIPELINE_SHARD (from 0), PIPELINE_SHARDS and PIPELINE_SHARD_NAME say which.",
    ),
  resources: resources.unwrap().optional().describe("By default those of the block."),
  environment_variables,
  secret_variables,
  retry_limit,
  max_runtime_hours,
  tasks,
});

export type PipelineStep = z.output<typeof step>;

/** The body of POST /pipelines. */
export const pipelineRequest = z
  .strictObject({
    name: z
      .string()
      .max(MAX_NAME)
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, "expected letters, digits, `.`, `_` and `-`")
      .describe("Jobs of its steps are named after it."),
    project: identifier.optional().describe("Whose quota it counts for; absent: the caller's."),
    queue: identifier.default("default"),
    reuse: z
      .boolean()
      .default(true)
      .describe("Steps that succeeded with the same block, config and inputs do not run again."),
    steps: boundedRecord(stepName, step, MAX_STEPS).refine(
      (given) => Object.keys(given).length > 0,
      "expected at least one step",
    ),
  })
  .meta({ id: "PipelineSpec" });

export type PipelineSpec = z.output<typeof pipelineRequest>;
/** A pipeline to submit. */
export type PipelineDefinition = z.input<typeof pipelineRequest>;
