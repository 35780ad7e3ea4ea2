import { z } from "zod";
import { chatCompletionRequest } from "../chat.ts";
import { type ApiOperation, type DataOf, json, type QueryOf } from "../operation.ts";
import { integerParameter } from "../parameters.ts";
import { expiresAfter } from "./files.ts";

/** What the lines of a batch may call, without the prefix `/api`. */
const BATCH_PATHS = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/embeddings",
  "/v1/moderations",
  "/v1/responses",
] as const;

const endpoint = z.enum(
  [...BATCH_PATHS, ...BATCH_PATHS.map((path) => `/api${path}` as const)],
  `expected one of ${BATCH_PATHS.join(", ")}`,
);

/** The longest completion window. */
const MAX_WINDOW_H = 7 * 24;
const MAX_PAGE_BATCHES = 100;
const DEFAULT_PAGE_BATCHES = 20;
const WINDOW = "expected a number of hours or days up to 7 days, as `24h`";

const { metadata } = chatCompletionRequest.shape;

const batchRequest = z
  .object({
    input_file_id: z.string().min(1).max(128).describe("A file with the purpose `batch`."),
    endpoint: endpoint.describe("What every line calls; `/api` may be before it."),
    completion_window: z
      .string()
      .regex(/^[1-9]\d{0,2}[hd]$/, WINDOW)
      .refine((text) => windowHours(text) <= MAX_WINDOW_H, WINDOW)
      .describe("After it, lines that have not run expire: `24h`, or any of up to `7d`."),
    metadata,
    output_expires_after: expiresAfter.nullish().describe("When the output files are deleted."),
  })
  .meta({ id: "CreateBatchRequest" });

export type BatchRequest = z.infer<typeof batchRequest>;

function windowHours(text: string): number {
  return Number.parseInt(text, 10) * (text.endsWith("d") ? 24 : 1);
}

/** The milliseconds of a completion window. */
export function windowMs(text: string): number {
  return windowHours(text) * 3_600_000;
}

const time = z.int().nullable();

const batchError = z.object({
  code: z.string(),
  message: z.string(),
  param: z.string().nullable(),
  line: z.int().nullable().describe("The line of the input file, from 1 on."),
});

export type BatchError = z.output<typeof batchError>;

const batch = z
  .object({
    id: z.string(),
    object: z.literal("batch"),
    endpoint,
    errors: z.object({ object: z.literal("list"), data: z.array(batchError) }).nullable(),
    input_file_id: z.string(),
    completion_window: z.string(),
    status: z.enum([
      "validating",
      "failed",
      "in_progress",
      "finalizing",
      "completed",
      "expired",
      "cancelling",
      "cancelled",
    ]),
    output_file_id: z.string().nullable().describe("The lines that succeeded."),
    error_file_id: z.string().nullable().describe("The lines that failed or expired."),
    created_at: z.int().describe("Seconds since the epoch."),
    in_progress_at: time,
    expires_at: z.int(),
    finalizing_at: time,
    completed_at: time,
    failed_at: time,
    expired_at: time,
    cancelling_at: time,
    cancelled_at: time,
    request_counts: z.object({ total: z.int(), completed: z.int(), failed: z.int() }),
    metadata: z.record(z.string(), z.string()).nullable(),
  })
  .meta({ id: "Batch", description: "Calls of a file that run without their client." });

export type ApiBatch = DataOf<typeof batch>;

const batchesQuery = z.object({
  limit: integerParameter(1, MAX_PAGE_BATCHES)
    .default(DEFAULT_PAGE_BATCHES)
    .describe("Maximum number of batches."),
  after: z.string("expected one value").max(128).optional().describe("The batch before the page."),
});

export type BatchesQuery = QueryOf<{ readonly query: typeof batchesQuery }>;

const batchPage = z.object({
  object: z.literal("list"),
  data: z.array(batch),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
  has_more: z.boolean(),
});

export type BatchPage = DataOf<typeof batchPage>;

const PATH = "/api/v1/batches";

export const batchOperations = {
  create: {
    operationId: "createBatch",
    method: "POST",
    path: PATH,
    permission: "batches:write",
    summary: "Runs the calls of a file, at a lower priority than other calls.",
    body: batchRequest,
    replies: { 200: json(batch) },
  },
  list: {
    operationId: "listBatches",
    method: "GET",
    path: PATH,
    permission: "batches:read",
    summary: "Lists the batches of the key, the newest first.",
    query: batchesQuery,
    replies: { 200: json(batchPage) },
  },
  retrieve: {
    operationId: "retrieveBatch",
    method: "GET",
    path: `${PATH}/{id}`,
    permission: "batches:read",
    summary: "Returns a batch with its progress.",
    replies: { 200: json(batch) },
  },
  cancel: {
    operationId: "cancelBatch",
    method: "POST",
    path: `${PATH}/{id}/cancel`,
    permission: "batches:write",
    summary: "Cancels a batch; what its finished lines answered stays.",
    replies: { 200: json(batch) },
  },
} as const satisfies Record<string, ApiOperation>;
