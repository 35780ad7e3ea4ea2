import { z } from "zod";
import {
  dryRunSchema,
  jobMetricsSchema,
  jobSchema,
  jobSummarySchema,
  submittedJobSchema,
} from "./job-replies.ts";
import { generateNameRequest, JOB_STATES, submitJobRequest } from "./job-spec.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import {
  booleanParameter,
  consistency,
  integerParameter,
  listSchema,
  pageQuery,
  pageSchema,
  stateQuery,
} from "./parameters.ts";

/** The maximum of `?wait=`, in seconds. */
const MAX_WAIT_SECONDS = 60;
const MAX_TAIL_LINES = 10_000;
const MAX_ATTEMPT = 1_000_000;
const MAX_RANK = 4_095;
const MAX_RANKS = 64;
/** Names of numbers of one query. */
const MAX_METRICS = 64;

/** The labels of one query, and the characters of each: a key of 63 and a value of 256. */
const MAX_LABELS = 16;
const MAX_LABEL = 63 + 1 + 256;

/** A parameter that may be given more than once. */
const many = z.union([z.string(), z.array(z.string())]).transform((given) => [given].flat());
/** The same, where one may also hold several. */
const separated = many.transform((given) => given.flatMap((text) => text.split(",")));

const jobsQuery = pageQuery.extend({
  state: separated
    .pipe(
      z
        .array(z.enum(JOB_STATES))
        .refine((given) => new Set(given).size === given.length, "expected each state once"),
    )
    .optional()
    .describe("One, or several separated by commas; each once."),
  algorithm: z.string().optional(),
  label: many
    .pipe(
      z.array(z.string().max(MAX_LABEL)).max(MAX_LABELS, `expected at most ${MAX_LABELS} labels`),
    )
    .optional()
    .describe("`key` or `key=value`; each must hold."),
  since: z.iso
    .datetime({ offset: true, error: "expected a time as 2026-01-31T12:00:00Z" })
    .optional()
    .describe("Submitted at this time or later."),
  project: z.string().optional(),
  queue: z.string().optional(),
  name: z.string().optional(),
});

export type JobsQuery = z.output<typeof jobsQuery>;

const waitExpected = `expected 0 to ${MAX_WAIT_SECONDS} seconds`;
const wait = z
  .string(waitExpected)
  .regex(/^\d{1,9}(\.\d{1,9})?$/, waitExpected)
  .transform(Number)
  .pipe(z.number(waitExpected).min(0, waitExpected).max(MAX_WAIT_SECONDS, waitExpected))
  .default(0)
  .describe("Seconds to wait for a change of the job.");

const wholeUpTo = (maximum: number, further = "") =>
  integerParameter(0, maximum, `expected a whole number up to ${maximum}${further}`);

const logTime = z
  .string()
  .refine(
    (text) =>
      /^\d{1,6}[smhd]$/.test(text) ||
      (/^\d{4}-\d\d-\d\d/.test(text) && Number.isFinite(Date.parse(text))),
    "expected a time as 2026-01-31T12:00:00Z, or a span before now as 10m",
  )
  .optional();

const logsQuery = z.object({
  follow: booleanParameter(["true", "1", ""], ["false", "0"]).describe(
    "Continues until the job has ended.",
  ),
  tail: wholeUpTo(MAX_TAIL_LINES)
    .optional()
    .describe("Only this many of the last lines of each log."),
  since: logTime.describe("A time, or a span before now as `10m`."),
  until: logTime,
  attempt: z
    .literal("all")
    .or(wholeUpTo(MAX_ATTEMPT, ", or `all`"))
    .optional()
    .describe("By default the latest attempt and those that follow."),
  rank: z
    .string()
    .transform((text) => text.split(","))
    .pipe(
      z
        .array(wholeUpTo(MAX_RANK))
        .max(MAX_RANKS, { error: `expected at most ${MAX_RANKS} ranks`, abort: true }),
    )
    .optional()
    .describe("One rank, or several separated by commas."),
  stream: z
    .enum(["stdout", "stderr", "both"], "expected `stdout`, `stderr` or `both`")
    .default("both"),
  cursor: z
    .string()
    .optional()
    .describe("The `cursor` of the last known line; the next one follows, to the byte."),
  consistency,
});

export type LogsQuery = z.output<typeof logsQuery>;

const STEP_EXPECTED = "expected a step, as 100";
const stepParameter = z
  .string(STEP_EXPECTED)
  .max(32, STEP_EXPECTED)
  .regex(/^-?\d+(\.\d+)?$/, STEP_EXPECTED)
  .transform(Number)
  .optional();

const metricsQuery = z.object({
  name: separated
    .pipe(z.array(z.string()).max(MAX_METRICS, `expected at most ${MAX_METRICS} names`))
    .optional()
    .describe("Of one number, or of several separated by commas; by default all."),
  from: stepParameter.describe("The first step."),
  to: stepParameter.describe("The last step."),
  points: integerParameter(2, 2_000)
    .default(500)
    .describe("The most points of each; an answer has at most 8,000 in all."),
  attempt: wholeUpTo(MAX_ATTEMPT)
    .optional()
    .describe("By default all, of which a later one replaces what it does again."),
  rank: wholeUpTo(MAX_RANK).default(0),
  consistency,
});

export type MetricsQuery = z.output<typeof metricsQuery>;

const place = {
  attempt: z.int(),
  rank: z.int(),
  incarnation: z
    .int()
    .describe("Earlier replacements of the rank within the attempt; each has its own logs."),
  stream: z.enum(["stdout", "stderr"]),
  offset: z.number().describe("The byte of that log at which it begins."),
  time: z.iso.datetime(),
  cursor: z.string().optional().describe("Position for resuming; only some lines have one."),
};

const logEntrySchema = z
  .discriminatedUnion("type", [
    z.object({
      type: z.literal("line"),
      ...place,
      text: z.string(),
      base64: z.string().optional().describe("The line's bytes, if they are not UTF-8."),
      partial: z.literal(true).optional().describe("The line continues in the next entry."),
    }),
    z.object({
      type: z.literal("gap"),
      ...place,
      bytes: z.number().describe("Bytes that were dropped."),
    }),
  ])
  .meta({ id: "LogEntry", description: "A line of a task's log without its end, or a gap." });

export type LogEntry = DataOf<typeof logEntrySchema>;

const artifactSchema = z
  .object({
    object: z.literal("artifact"),
    name: z.string().describe("Relative, with `/` between folders."),
    bytes: z.number(),
    sha256: z.string().describe("Hexadecimal."),
    rank: z.int(),
    attempt: z.int(),
    node: z.string().describe("The worker that has it."),
  })
  .meta({ id: "JobArtifact", description: "An artifact of a job's task." });

export type JobArtifact = DataOf<typeof artifactSchema>;

const change = {
  permission: "jobs:cancel",
  headers: ["Idempotency-Key", "If-Match"],
  status: 202,
  replies: { 202: json(jobSchema) },
} as const;

export const jobOperations = {
  create: {
    operationId: "jobs.create",
    method: "POST",
    path: "/api/v1/jobs",
    permission: "jobs:create",
    summary: "Submits a job; `?dry_run=true` reports the outcome and submits nothing.",
    query: z.object({ dry_run: booleanParameter(["true"], ["false"]) }),
    headers: ["Idempotency-Key"],
    body: submitJobRequest
      .partial({ name: true })
      .extend({
        generate_name: generateNameRequest.shape.generate_name
          .optional()
          .describe("In place of `name`: the prefix of a generated unique name."),
      })
      .meta({ id: "JobSpec" }),
    status: 202,
    replies: { 200: json(dryRunSchema), 202: json(submittedJobSchema) },
  },
  list: {
    operationId: "jobs.list",
    method: "GET",
    path: "/api/v1/jobs",
    permission: "jobs:read",
    summary: "Lists the jobs, newest first.",
    query: jobsQuery,
    readsState: true,
    replies: { 200: json(pageSchema(jobSummarySchema)) },
  },
  get: {
    operationId: "jobs.get",
    method: "GET",
    path: "/api/v1/jobs/{id}",
    permission: "jobs:read",
    summary: "Shows a job and why it waits; `?wait=SECONDS` waits for a change.",
    query: stateQuery.extend({ wait }),
    readsState: true,
    headers: ["If-None-Match"],
    replies: { 200: json(jobSchema), 304: {} },
  },
  cancel: {
    ...change,
    operationId: "jobs.cancel",
    method: "DELETE",
    path: "/api/v1/jobs/{id}",
    summary: "Cancels a job; with `If-Match` only if it has that version.",
  },
  suspend: {
    ...change,
    operationId: "jobs.suspend",
    method: "POST",
    path: "/api/v1/jobs/{id}/suspend",
    summary: "Checkpoints a job and releases its resources until it is resumed.",
  },
  resume: {
    ...change,
    operationId: "jobs.resume",
    method: "POST",
    path: "/api/v1/jobs/{id}/resume",
    summary: "Resumes a suspended job.",
  },
  logs: {
    operationId: "jobs.logs",
    method: "GET",
    path: "/api/v1/jobs/{id}/logs",
    permission: "jobs:read",
    summary: "Reads the logs of a job's tasks, and follows them.",
    query: logsQuery,
    readsState: true,
    headers: ["Last-Event-ID"],
    replies: {
      200: {
        "text/plain": "The bytes of the logs.",
        "application/x-ndjson": logEntrySchema,
        "text/event-stream": { message: logEntrySchema, end: z.object({}) },
      },
    },
  },
  metrics: {
    operationId: "jobs.metrics",
    method: "GET",
    path: "/api/v1/jobs/{id}/metrics",
    permission: "jobs:read",
    summary: "Shows the numbers that a job's program has reported, by step.",
    query: metricsQuery,
    readsState: true,
    replies: { 200: json(jobMetricsSchema) },
  },
  artifacts: {
    operationId: "jobs.artifacts",
    method: "GET",
    path: "/api/v1/jobs/{id}/artifacts",
    permission: "jobs:read",
    summary: "Lists the artifacts of a job.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(listSchema(artifactSchema)) },
  },
  artifact: {
    operationId: "jobs.artifact",
    method: "GET",
    path: "/api/v1/jobs/{id}/artifacts/{name}",
    permission: "jobs:read",
    summary: "Downloads an artifact; its ETag is its SHA-256, and `Range` resumes.",
    query: z.object({
      rank: integerParameter(0, 999_999, "expected a task's rank, as 0").optional(),
    }),
    headers: ["If-None-Match", "If-Range", "Range"],
    replies: {
      200: { "application/octet-stream": "The file." },
      206: { "application/octet-stream": "The requested range of the file." },
      304: {},
      416: {},
    },
  },
} as const satisfies Record<string, ApiOperation>;
