import { z } from "zod";
import { jobState } from "../job-replies.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { booleanParameter, pageQuery, pageSchema, stateQuery, time } from "../parameters.ts";
import { pipelineRequest } from "./spec.ts";

const pipelineJobSchema = z
  .object({
    step: z.string(),
    shard: z.string().nullable().describe("The shard's name or number; null without shards."),
    block: z.string().describe("With its version, as `train@1`."),
    key: z.string().describe("The SHA-256 of the block, its config and the keys of its inputs."),
    job: z.string().nullable().describe("Null in a dry run."),
    state: jobState.nullable().describe("Null in a dry run, and for a job that was forgotten."),
    reused: z.boolean().describe("The job is of an earlier pipeline, with the same key."),
    skipped: z.boolean().describe("A condition did not hold."),
    needs: z.array(z.string()).describe("The steps that come before it."),
    message: z.string().nullable().describe("Why it failed, or was skipped."),
  })
  .meta({ id: "PipelineJob", description: "One step of a pipeline, or one shard of it." });

export type PipelineJob = DataOf<typeof pipelineJobSchema>;

const pipelineSummarySchema = z
  .object({
    id: z.string().describe("The id of the job that waits for all steps."),
    object: z.literal("pipeline"),
    name: z.string(),
    project: z.string(),
    state: jobState.describe("`accepted` or `pending` while steps run."),
    submitted_at: time,
    ended_at: time.nullable(),
  })
  .meta({ id: "PipelineSummary" });

export type PipelineSummary = DataOf<typeof pipelineSummarySchema>;

const pipelineSchema = pipelineSummarySchema
  .extend({ jobs: z.array(pipelineJobSchema) })
  .meta({ id: "Pipeline", description: "A pipeline: jobs with dependencies." });

export type PipelineView = DataOf<typeof pipelineSchema>;

const portSchema = z.object({
  name: z.string(),
  type: z.string(),
  required: z.boolean().optional(),
});

const blockSchema = z
  .object({
    id: z.string().describe("Name and version, as `train@1`."),
    object: z.literal("block"),
    summary: z.string(),
    inputs: z.array(portSchema),
    outputs: z.array(portSchema),
    config: z.record(z.string(), z.unknown()).describe("The JSON Schema of its config."),
  })
  .meta({ id: "Block", description: "What a step of a pipeline can run." });

export type BlockView = DataOf<typeof blockSchema>;

const PATH = "/api/v1/pipelines";

export const pipelineOperations = {
  create: {
    operationId: "pipelines.create",
    method: "POST",
    path: PATH,
    permission: "jobs:create",
    summary: "Submits a pipeline; `?dry_run=true` checks it, shows its jobs and submits nothing.",
    query: z.object({ dry_run: booleanParameter(["true"], ["false"]) }),
    headers: ["Idempotency-Key"],
    body: pipelineRequest,
    status: 202,
    replies: { 200: json(pipelineSchema), 202: json(pipelineSchema) },
  },
  list: {
    operationId: "pipelines.list",
    method: "GET",
    path: PATH,
    permission: "jobs:read",
    summary: "Lists the pipelines, newest first.",
    query: pageQuery.extend({ project: z.string().optional(), name: z.string().optional() }),
    readsState: true,
    replies: { 200: json(pageSchema(pipelineSummarySchema)) },
  },
  get: {
    operationId: "pipelines.get",
    method: "GET",
    path: `${PATH}/{id}`,
    permission: "jobs:read",
    summary: "Shows a pipeline with the jobs of its steps.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(pipelineSchema) },
  },
  cancel: {
    operationId: "pipelines.cancel",
    method: "DELETE",
    path: `${PATH}/{id}`,
    permission: "jobs:cancel",
    summary: "Cancels a pipeline and the jobs of its steps, but not reused ones.",
    status: 202,
    replies: { 202: json(pipelineSchema) },
  },
  blocks: {
    operationId: "pipelines.blocks",
    method: "GET",
    path: "/api/v1/blocks",
    permission: "jobs:read",
    summary: "Lists the blocks that steps can run.",
    replies: { 200: json(z.object({ object: z.literal("list"), data: z.array(blockSchema) })) },
  },
} as const satisfies Record<string, ApiOperation>;
