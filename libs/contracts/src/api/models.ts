import { z } from "zod";
import { CHAT_TEMPLATE_ORIGINS, DETERMINISTIC_MODES, KV_DTYPES } from "../engine.ts";
import { PLACEMENT_MODES, SPLIT_MODES, STAGE_DTYPES } from "../models/model-division.ts";
import { UPSTREAM_DIALECTS } from "../models/upstream-spec.ts";
import { errorResponse } from "./errors.ts";
import { WEIGHT_SOURCES } from "./meanings/models.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { boundedArray, listSchema, stateQuery } from "./parameters.ts";

const count = z.int().min(1);
/** The most devices that llama.cpp divides a model over. */
const MAX_GPUS = 16;
const CAPABILITIES = ["chat", "completions", "embeddings", "reasoning"] as const;
const SCHEMES = new RegExp(`^(${Object.keys(WEIGHT_SOURCES).join("|")})://\\S+$`);

const configuredName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "expected a name of letters, digits, `.`, `_`, `-`");
const seconds = z.number().min(0.001).max(86_400);

/** An OpenAI-compatible server that serves the model, instead of libllama. */
const upstreamEngine = z.strictObject({
  kind: z.literal("openai"),
  base_url: z
    .string()
    .max(2048)
    .optional()
    .describe("As `https://api.openai.com/v1`; its origin must be allowed by the workers."),
  command: configuredName
    .optional()
    .describe("Instead of `base_url`: a command of the workers' configuration, by its name."),
  model: z.string().min(1).max(200).describe("The server's id of the model."),
  dialect: z
    .enum(UPSTREAM_DIALECTS)
    .default("openai")
    .describe("What the server understands beyond OpenAI's contract."),
  api_key: configuredName.optional().describe("A key of the workers' configuration, by its name."),
  max_concurrency: count.max(4096).default(16).describe("Choices that it generates at once."),
  connect_timeout_s: seconds.default(5),
  first_byte_timeout_s: seconds.default(120),
  idle_timeout_s: seconds.default(60),
  max_retries: z
    .int()
    .min(0)
    .max(10)
    .default(2)
    .describe("Of a request, before the first byte of its answer."),
  probe_interval_s: seconds
    .default(60)
    .describe("A server that was idle this long is asked for one token."),
});

/** Bounds within which the number of replicas follows the load. */
const scalingSchema = z
  .strictObject({
    min: z.int().min(0).max(10_000).default(0),
    max: count.max(10_000).default(1),
    idle_unload_s: z
      .number()
      .min(1)
      .max(31_536_000)
      .optional()
      .describe("With a `min` of 0: without calls for this long, no replica stays."),
    target_queue: z
      .number()
      .min(0)
      .max(100_000)
      .default(2)
      .describe("Waiting calls for each replica, above which there are more."),
    target_ttft_ms: z
      .number()
      .min(1)
      .max(600_000)
      .default(2_000)
      .describe("The time to the first token of 9 of 10 calls, above which there are more."),
    cool_down_s: z.number().min(1).max(86_400).default(30).describe("The pause after a change."),
  })
  .refine(({ min, max }) => min <= max, { path: ["max"], error: "it is less than `min`" })
  .refine(({ min, idle_unload_s }) => min === 0 || idle_unload_s === undefined, {
    path: ["idle_unload_s"],
    error: "it needs a `min` of 0",
  });

export type RequestedScaling = z.output<typeof scalingSchema>;

const replicasSchema = z.union([z.int().min(0).max(10_000), z.literal("every-worker")]);

/** The body of PUT /models/{id}/scaling. */
const scaleModelRequest = z
  .strictObject({
    replicas: replicasSchema.optional().describe("A fixed number, instead of `scaling`."),
    scaling: scalingSchema.optional(),
  })
  .meta({ id: "ScaleModelRequest" });

export type ModelScale = z.input<typeof scaleModelRequest>;

/** Who may list, read and call a model: every project, or the one that it was registered in. */
const visibilitySchema = z.enum(["cluster", "project"]);

/** The body of POST /models: the id's promises, and what serves it. */
export const registerModelRequest = z
  .strictObject({
    id: z
      .string()
      .regex(
        /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/,
        "expected 1 to 200 letters, digits, `.`, `_`, `:`, `/` and `-`, of which the first is a letter or a digit",
      ),
    family: z.string().min(1).max(100).default("custom"),
    context_window: count.max(100_000_000).default(4096),
    availability: z.string().max(100).default("Private"),
    intended_use: z.string().max(1000).default(""),
    owned_by: z.string().min(1).max(100).default("organization"),
    capabilities: boundedArray(z.enum(CAPABILITIES), CAPABILITIES.length).default(["chat"]),
    backing: z.string().min(1).max(500).optional(),
    stand_in: z.boolean().default(false),
    visibility: visibilitySchema
      .optional()
      .describe("`project`: it exists for the caller's project alone. `cluster` if absent."),
    source: z
      .string()
      .regex(SCHEMES, "expected hf://, https://, file:// or a like source")
      .optional()
      .describe(
        "A source as text, or in full. File name and cache key are derived from the source.",
      ),
    weights: z
      .strictObject({
        key: z
          .string()
          .regex(/^[a-z0-9][a-z0-9._-]{0,127}$/)
          .optional(),
        file: z
          .string()
          .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*\.gguf$/)
          .optional(),
        sources: z.array(z.string().regex(SCHEMES)).min(1).max(16),
        sha256: z
          .string()
          .regex(/^[0-9a-f]{64}$/)
          .optional(),
        size_bytes: count.optional(),
        license: z.string().max(100).optional(),
      })
      .optional(),
    adapter: z
      .strictObject({
        base: z.string().min(1).max(200).describe("The id of the model that it changes."),
        scale: z.number().min(-100).max(100).default(1),
      })
      .optional()
      .describe(
        "The weights are a LoRA adapter in GGUF: the replicas of `base` answer with it under this id.",
      ),
    engine: z
      .discriminatedUnion("kind", [z.strictObject({ kind: z.literal("llama") }), upstreamEngine])
      .default({ kind: "llama" })
      .describe("`llama` runs the weights; `openai` is a server that speaks OpenAI's API."),
    replicas: replicasSchema.default(1),
    placement: z
      .enum(PLACEMENT_MODES)
      .optional()
      .describe(
        "`sharded`: several workers divide the model's blocks. `auto` (default): only for replicas of a model of known size that no single worker can hold; on GPUs, whose weights alone fit no worker's.",
      ),
    max_stages: z
      .int()
      .min(2)
      .max(16)
      .optional()
      .describe("The most workers that divide the model; 8 if absent."),
    scaling: scalingSchema
      .optional()
      .describe("The number of replicas follows the load; `replicas` is the first number."),
    resources: z
      .strictObject({
        gpu_count: count
          .max(MAX_GPUS)
          .describe("Of one node, which divides the model over several; of each stage's node."),
        gpu_type: z
          .union([z.string().min(1).max(64), z.array(z.string().min(1).max(64)).min(1).max(16)])
          .optional(),
        gpu_memory_gb: z.number().min(0).max(100_000).optional(),
      })
      .optional()
      .describe(
        "Resources of each replica; the scheduler places it, within the quota of `default`.",
      ),
    options: z
      .strictObject({
        context_tokens: count.optional(),
        kv_tokens: count.optional(),
        max_sequences: count.max(4096).optional(),
        max_queued: count.max(1_000_000).optional(),
        threads: count.max(1024).optional(),
        prefill_budget_tokens: count.optional(),
        decoding: z
          .strictObject({
            draft_tokens: z
              .int()
              .min(0)
              .max(48)
              .optional()
              .describe("The most tokens that are predicted and computed at once; 0 for none."),
            deterministic: z
              .enum(DETERMINISTIC_MODES)
              .optional()
              .describe(
                "Which calls answer the same whatever else runs: those that ask (`request`, the default), those with a `seed`, or `always`.",
              ),
            context_shift: z
              .boolean()
              .optional()
              .describe(
                "An answer may outgrow the context, up to its `max_tokens`: each time half of what follows the prompt is left out.",
              ),
          })
          .optional(),
        device: z
          .string()
          .regex(/^(cpu|\d{1,3})$/, "expected `cpu` or a GPU's index")
          .optional(),
        gpu_layers: z.int().min(-1).max(10_000).optional(),
        chat_template: z.string().max(65_536).optional(),
        kv_dtype: z
          .enum(KV_DTYPES)
          .optional()
          .describe(
            "Of the KV cache: `f16`, the default, or `q8_0`, about half as large and inexact.",
          ),
        stage_dtype: z
          .enum(STAGE_DTYPES)
          .optional()
          .describe(
            "What the stages of a divided model send each other: `f32`, the default, is exact; `bf16` is half as much, for slow links.",
          ),
        split_mode: z
          .enum(SPLIT_MODES)
          .optional()
          .describe("Over several GPUs: by `layer` (default), by `row` of tensors, or `none`."),
        tensor_split: z
          .array(z.number().min(0).max(1_000_000))
          .min(1)
          .max(MAX_GPUS)
          .optional()
          .describe("The share of each GPU; by free memory if absent."),
        main_gpu: z
          .int()
          .min(0)
          .max(MAX_GPUS - 1)
          .optional()
          .describe("The GPU of the small tensors, by its place among the replica's."),
      })
      .default({}),
  })
  .meta({ id: "ModelSpec" });

export type RegisterModelRequest = z.output<typeof registerModelRequest>;
/** A model to register: its id, and what serves it. */
export type ModelSpec = z.input<typeof registerModelRequest>;

const chatTemplate = z
  .enum(CHAT_TEMPLATE_ORIGINS)
  .nullable()
  .describe("The origin of the chat template of ready replicas; null if unknown.");

/** A copy of a model on a worker. */
export const replicaSchema = z.object({
  node: z.string(),
  phase: z.enum(["pulling", "loading", "ready", "failed", "unloading"]),
  pulled_bytes: z.number(),
  total_bytes: z.number(),
  message: z.string().describe("Why it failed, or what it waits for."),
  running: z.int(),
  waiting: z.int(),
  engine: z.string().nullable(),
  device: z.string().nullable(),
  context_tokens: z.int().nullable(),
  chat_template: chatTemplate,
  stages: z
    .array(
      z.object({
        node: z.string(),
        first_block: z.int(),
        last_block: z.int(),
        phase: z.enum(["pulling", "loading", "ready", "failed", "unloading", "missing"]),
        message: z.string(),
        device: z.string().nullable().describe("`cpu`, or its GPUs; null until it is loaded."),
        planned_bytes: z.number().describe("Planned, of its worker's memory or of its GPUs'."),
        memory_bytes: z.number().describe("What its process holds."),
        steps: z.int().describe("Batches that it has computed since it was loaded."),
        step_ms: z.number().nullable().describe("Mean time of a step; null before the first."),
        idle_share: z
          .number()
          .nullable()
          .describe("The part of its time, 0 to 1, that it waited for other stages (bubbles)."),
        hop_ms: z
          .number()
          .nullable()
          .describe("Mean time of a batch between two workers; the last stage measures it."),
      }),
    )
    .nullable()
    .describe("The parts of a model that workers divide, in order; null for a whole one."),
});

export type ModelReplica = DataOf<typeof replicaSchema>;

const lineageSchema = z
  .object({
    job_id: z.string(),
    job_name: z.string(),
    project: z.string(),
    attempt: z.int(),
    algorithm: z.string(),
    sha256: z.string().describe("Of the model's file, hexadecimal."),
    data_sha256: z.string().nullable(),
    code_version: z.string().nullable(),
    step: z.number().nullable(),
    loss: z.number().nullable(),
  })
  .meta({ id: "ModelLineage", description: "The job that has trained a model, and its inputs." });

export type ModelLineage = DataOf<typeof lineageSchema>;

const modelSchema = z
  .object({
    id: z.string(),
    object: z.literal("model"),
    created: z.int().describe("Seconds since the epoch."),
    owned_by: z.string(),
    family: z.string(),
    context_window: z.int().describe("The registered context, in tokens."),
    served_context_tokens: z
      .int()
      .nullable()
      .describe("The context of every ready replica, in tokens; null if unknown."),
    chat_template: chatTemplate,
    availability: z.string(),
    intended_use: z.string(),
    capabilities: z.array(z.string()),
    backing: z.string(),
    stand_in: z.boolean(),
    visibility: visibilitySchema,
    project: z.string().nullable().describe("The only project that it exists for; null for all."),
    deployment: z.string(),
    wanted_replicas: replicasSchema.describe("How many replicas there are to be."),
    scaling: z
      .object({
        min: z.int(),
        max: z.int(),
        idle_unload_s: z.number().nullable(),
        target_queue: z.number(),
        target_ttft_ms: z.number(),
        cool_down_s: z.number(),
        scaled_at: z.int().nullable().describe("Of the latest change, seconds since the epoch."),
        reason: z.string().nullable(),
      })
      .nullable()
      .describe("Null for a fixed number of replicas."),
    lineage: lineageSchema
      .nullable()
      .describe("Null for a model that no job has trained, or none that the caller may see."),
    status: z
      .enum(["ready", "loading", "pulling", "failed", "idle", "unplaced"])
      .describe(
        "The best phase of any replica; without one `idle` if a call starts it, or `unplaced`.",
      ),
    replicas: z.array(replicaSchema),
    undivided: z
      .string()
      .nullable()
      .describe(
        "Why the placement `auto` does not divide the model between workers; null where it may.",
      ),
    waiting_for: z
      .array(z.string())
      .describe("What blocks a replica's placement, and the reason of a permanent failure."),
    weights: z
      .object({
        file: z.string(),
        sources: z.array(z.string()),
        sha256: z.string().nullable(),
        license: z.string().nullable(),
      })
      .nullable()
      .describe("Null if the model is not loaded from a file."),
    adapter: z
      .object({
        base: z.string(),
        scale: z.number(),
        file: z.string(),
        sources: z.array(z.string()),
        sha256: z.string().nullable(),
      })
      .nullable()
      .describe("The LoRA adapter that the model is; null for a model of its own."),
    upstream: z
      .object({
        base_url: z.string().nullable(),
        command: z.string().nullable(),
        model: z.string(),
        dialect: z.enum(UPSTREAM_DIALECTS),
      })
      .nullable()
      .describe("The OpenAI-compatible server that serves the model; null for libllama."),
  })
  .meta({ id: "Model", description: "A model, its weights and its replicas." });

export type Model = DataOf<typeof modelSchema>;

const deletedModelSchema = z
  .object({ id: z.string(), object: z.literal("model"), deleted: z.literal(true) })
  .meta({ id: "DeleteModelResponse" });

export type DeletedModel = DataOf<typeof deletedModelSchema>;

const pullProgressSchema = z
  .object({
    pulled_bytes: z.number(),
    total_bytes: z.number(),
    source: z.string(),
    done: z.boolean(),
  })
  .meta({ id: "ModelPullProgress", description: "The progress of a pull of weights." });

export type ModelPullProgress = DataOf<typeof pullProgressSchema>;

/** The operations of OpenAI's contract have its operation ids. */
export const modelOperations = {
  list: {
    operationId: "listModels",
    method: "GET",
    path: "/api/v1/models",
    permission: "models:read",
    summary: "Lists the models that the caller may use.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(listSchema(modelSchema).meta({ id: "ListModelsResponse" })) },
  },
  get: {
    operationId: "retrieveModel",
    method: "GET",
    path: "/api/v1/models/{id}",
    permission: "models:read",
    summary: "Shows one model.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(modelSchema) },
  },
  register: {
    operationId: "models.register",
    method: "POST",
    path: "/api/v1/models",
    permission: "models:deploy",
    summary: "Registers a model and what serves it.",
    headers: ["Idempotency-Key"],
    body: registerModelRequest,
    replies: { 200: json(modelSchema) },
  },
  scale: {
    operationId: "models.scale",
    method: "PUT",
    path: "/api/v1/models/{id}/scaling",
    permission: "models:deploy",
    summary: "Sets the number of a model's replicas, or bounds within which it follows the load.",
    body: scaleModelRequest,
    replies: { 200: json(modelSchema) },
  },
  remove: {
    operationId: "deleteModel",
    method: "DELETE",
    path: "/api/v1/models/{id}",
    permission: "models:deploy",
    summary: "Removes a model, and its replicas unless another model uses them.",
    replies: { 200: json(deletedModelSchema) },
  },
  pull: {
    operationId: "models.pull",
    method: "POST",
    path: "/api/v1/models/{id}/pull",
    permission: "models:deploy",
    summary:
      "Downloads a model's weights and streams the progress; workers with failed replicas retry.",
    replies: {
      200: {
        "text/event-stream": {
          progress: pullProgressSchema,
          done: z.object({}),
          error: errorResponse,
        },
      },
    },
  },
} as const satisfies Record<string, ApiOperation>;
