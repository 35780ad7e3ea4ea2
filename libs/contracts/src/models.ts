import { z } from "zod";

const count = z.int().min(1);
const schemes = /^(hf|https|file|oci|npm|pypi|artifact|builtin):\/\/\S+$/;

/** The body of POST /models: the id's promises, and the weights that serve it. */
export const registerModelRequest = z.strictObject({
  id: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/,
      "expected letters, digits, `.`, `_`, `:`, `/` or `-`",
    ),
  family: z.string().min(1).max(100).default("custom"),
  context_window: count.max(100_000_000).default(4096),
  availability: z.string().max(100).default("Private"),
  intended_use: z.string().max(1000).default(""),
  owned_by: z.string().min(1).max(100).default("organization"),
  capabilities: z
    .array(z.enum(["chat", "completions", "embeddings", "reasoning"]))
    .default(["chat"]),
  backing: z.string().min(1).max(500).optional(),
  stand_in: z.boolean().default(false),
  /** A source as text, or in full. File name and cache key are derived from the source. */
  source: z
    .string()
    .regex(schemes, "expected hf://, https://, file:// or a like source")
    .optional(),
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
      sources: z.array(z.string().regex(schemes)).min(1).max(16),
      sha256: z
        .string()
        .regex(/^[0-9a-f]{64}$/)
        .optional(),
      size_bytes: count.optional(),
      license: z.string().max(100).optional(),
    })
    .optional(),
  replicas: z.union([z.int().min(0).max(10_000), z.literal("every-worker")]).default(1),
  /**
   * What each replica needs of its node: the scheduler places it, within the quota of `default`.
   */
  resources: z
    .strictObject({
      gpu_count: z.literal(1, "expected 1: an engine runs on one GPU"),
      gpu_type: z
        .union([z.string().min(1).max(64), z.array(z.string().min(1).max(64)).min(1).max(16)])
        .optional(),
      gpu_memory_gb: z.number().min(0).max(100_000).optional(),
    })
    .optional(),
  options: z
    .strictObject({
      context_tokens: count.optional(),
      kv_tokens: count.optional(),
      max_sequences: count.max(4096).optional(),
      max_queued: count.max(1_000_000).optional(),
      threads: count.max(1024).optional(),
      prefill_budget_tokens: count.optional(),
      device: z
        .string()
        .regex(/^(cpu|\d{1,3})$/, "expected `cpu` or a GPU's index")
        .optional(),
      gpu_layers: z.int().min(-1).max(10_000).optional(),
      chat_template: z.string().max(65_536).optional(),
    })
    .default({}),
});

export type RegisterModelRequest = z.infer<typeof registerModelRequest>;
