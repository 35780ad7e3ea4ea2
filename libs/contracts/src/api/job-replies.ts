import { z } from "zod";
import {
  FAILURE_REASONS,
  JOB_STATES,
  type JobPhase,
  type JobState,
  submitJobRequest,
} from "./job-spec.ts";
import type { DataOf } from "./operation.ts";
import { time } from "./parameters.ts";

const text = z.string().nullable();
const number = z.number().nullable();

/** The state in upper case. */
export function phaseOf(state: JobState): JobPhase {
  return state.toUpperCase() as JobPhase;
}

export const jobState = z.enum(JOB_STATES);
export const jobPhase = z
  .enum(JOB_STATES.map(phaseOf))
  .describe("The state in upper case, as `RUNNING`.");

export const submittedJobSchema = z
  .object({
    job_id: z.string(),
    state: jobState.describe("`accepted`; of an existing job under the caller's id, its state."),
    submitted_at: time,
  })
  .meta({ id: "SubmittedJob" });

export type SubmittedJob = DataOf<typeof submittedJobSchema>;

export const jobFailureSchema = z
  .object({
    reason: z.enum(FAILURE_REASONS),
    cause: z
      .enum(FAILURE_REASONS)
      .nullable()
      .describe("The last attempt's reason, once retries are used up."),
    message: z.string(),
    exit_code: number,
    signal: text,
    rank: z.int().nullable(),
    node: text,
    node_name: text.describe("Null also for a node that the cluster no longer knows."),
    last_lines: z.array(z.string()).describe("The last lines of the failed task's output."),
  })
  .meta({ id: "JobFailure", description: "Why a job failed, and on which task." });

export type JobFailure = DataOf<typeof jobFailureSchema>;

export const jobProgressSchema = z
  .object({
    progress: number.describe("0 to 1."),
    step: number,
    total_steps: number,
    loss: number,
    reward: number,
    steps_per_second: number,
    tokens_per_second: number,
    backend: text.describe("The compute backend, for example `onnx`."),
    device: text,
    bytes_pushed: number.describe("Sent to the parameter servers so far."),
    metrics: z.record(z.string(), z.number()).describe("Further numbers of the program."),
    message: text,
    at: time.nullable(),
    expected_end: time.nullable(),
  })
  .meta({ id: "JobProgress", description: "A job's progress, as its program reports it." });

export type JobProgress = DataOf<typeof jobProgressSchema>;

export const jobSummarySchema = z
  .object({
    id: z.string(),
    object: z.literal("job"),
    name: z.string(),
    project: z.string(),
    queue: z.string(),
    labels: z.record(z.string(), z.string()),
    algorithm: text,
    state: jobState,
    phase: jobPhase,
    tasks: z.int(),
    gpu_count: z.number(),
    priority: z.int(),
    qos_level: z.string(),
    attempt: z.int(),
    submitted_at: time,
    since: time.describe("When it entered its state."),
    first_started_at: time.nullable(),
    started_at: time.nullable(),
    ended_at: time.nullable(),
    progress: jobProgressSchema.nullable(),
    failure: jobFailureSchema.nullable(),
  })
  .meta({ id: "JobSummary", description: "A job in a list." });

export type JobSummary = DataOf<typeof jobSummarySchema>;

const metricPointSchema = z.object({
  step: z.number().describe("The last of its steps."),
  time,
  count: z.int().describe("Values of these steps."),
  min: z.number(),
  max: z.number(),
  mean: z.number(),
});

export type MetricPoint = DataOf<typeof metricPointSchema>;

export const jobMetricsSchema = z
  .object({
    object: z.literal("job_metrics"),
    job_id: z.string(),
    rank: z.int(),
    names: z.array(z.string()).describe("Of all numbers that the task has reported."),
    series: z.array(z.object({ name: z.string(), points: z.array(metricPointSchema) })),
  })
  .meta({ id: "JobMetrics", description: "The numbers that a job's program has reported." });

export type JobMetrics = DataOf<typeof jobMetricsSchema>;

const jobTaskSchema = z
  .object({
    rank: z.int(),
    attempt: z.int(),
    node: z.string(),
    node_name: text,
    devices: z.array(z.int()),
    gpu_milli: z.int().describe("The share of each device, in thousandths."),
    simulated: z.boolean().describe("Whether its GPUs are simulated."),
    phase: z.string(),
    wanted: z.string().describe("The desired state that its node receives."),
    exit: z
      .object({
        reason: text,
        exit_code: number,
        signal: text,
        message: z.string(),
        ended_at: time.nullable(),
      })
      .nullable(),
  })
  .meta({ id: "JobTask", description: "One task of a job's current attempt." });

export type JobTask = DataOf<typeof jobTaskSchema>;

const jobBlockerSchema = z
  .object({
    reason: z.string(),
    resource: z.string(),
    requested: z.number(),
    free: z.number(),
    limit: z.number().describe("The total, quota or setting that bounds `free`."),
    rejected: z.int().optional().describe("The nodes, of `limit`, that are rejected for this."),
    wanted: z.string().optional().describe("The executor or algorithm that no node offers."),
    offered: z.array(z.string()).optional().describe("The names that nodes do offer."),
    jobs: z
      .array(z.string())
      .optional()
      .describe("Ids of the jobs that it waits for; the first 16."),
    message: z.string(),
  })
  .meta({ id: "JobBlocker", description: "One reason why a job waits, with its numbers." });

export type JobBlocker = DataOf<typeof jobBlockerSchema>;

const scalar = z.union([z.string(), z.number(), z.boolean()]);

export const jobExplanationSchema = z
  .object({
    blockers: z.array(jobBlockerSchema),
    nodes: z.object({
      total: z.int(),
      rejected: z.record(z.string(), z.int()).describe("By static filter."),
      rejected_by_capacity: z.int(),
    }),
    tasks_that_fit: z.int(),
    start_estimate: z.object({
      earliest: time.nullable(),
      likely: time.nullable(),
      latest: time.nullable(),
    }),
    changes: z
      .array(
        z.object({
          field: z.string().describe("As in the spec; `all_amounts` scales all amounts alike."),
          from: scalar,
          to: scalar.nullable().describe("In the units of the spec; null removes the field."),
          cost: z.number().describe("The share of the field that is given up, 0 to 1."),
          outcome: z
            .enum(["would_start", "would_wait"])
            .describe("`would_wait` only for a job that can never run as it is."),
        }),
      )
      .describe("Changes of the spec that would help, the smallest first."),
  })
  .meta({
    id: "JobExplanation",
    description: "Why a job waits, its estimated start, and changes that would help.",
  });

export type JobExplanation = DataOf<typeof jobExplanationSchema>;

export const jobSchema = jobSummarySchema
  .extend({
    index: z.int().describe('The log index of its latest change; `"INDEX"` is its ETag.'),
    failures: z.int(),
    losses: z.int(),
    preemptions: z.int(),
    live_tasks: z.int(),
    waiting_for: z.array(z.string()),
    leaving: z.object({ why: z.string(), for_job: text, for_deployment: text }).nullable(),
    due_at: time.nullable(),
    not_before: time.nullable(),
    promised_start: time.nullable(),
    checkpoint: z
      .object({ name: z.string(), attempt: z.int(), step: number, at: time.nullable() })
      .nullable(),
    executor: z.string(),
    training: z
      .object({
        backend: text,
        device: text,
        bytes_pushed: number,
        shards: z.array(
          z.object({
            shard: z.int(),
            parameter_server: z.string(),
            name: text,
            address: text,
            state: z.string().describe("`ready`, `lost`, or `forgotten`."),
          }),
        ),
      })
      .nullable()
      .describe("Null for a job that does not train."),
    model: z
      .object({
        id: z.string(),
        state: z.enum(["pending", "registered", "failed"]),
        message: text,
      })
      .nullable()
      .describe("The model under which its result is, or will be, served."),
    task_list: z.array(jobTaskSchema),
    spec: submitJobRequest.omit({ id: true }).meta({ id: "StoredJobSpec" }),
    explanation: jobExplanationSchema.nullable().describe("Null if the job does not wait."),
  })
  .meta({ id: "Job", description: "The whole of a job." });

export type Job = DataOf<typeof jobSchema>;

export const dryRunSchema = z
  .object({
    object: z.literal("dry_run"),
    verdict: z.enum(["would_start", "would_wait", "unsatisfiable"]),
    tasks: z.int(),
    placement: z.array(
      z.object({
        rank: z.int(),
        node: z.string(),
        node_name: text,
        devices: z.array(z.int()),
      }),
    ),
    never_fits: z.array(jobBlockerSchema),
    explanation: jobExplanationSchema,
  })
  .meta({ id: "DryRun", description: "The outcome of submitting a job now; nothing changes." });

export type DryRun = DataOf<typeof dryRunSchema>;
