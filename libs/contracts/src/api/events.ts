import { z } from "zod";
import { jobFailureSchema, jobPhase, jobProgressSchema, jobState } from "./job-replies.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { consistency, integerParameter, time } from "./parameters.ts";

const head = {
  id: z.string().describe("Its position in the log, which `after` takes."),
  object: z.literal("event"),
  at: time,
};

const jobEventSchema = z
  .object({
    ...head,
    type: z.literal("job"),
    job_id: z.string(),
    name: z.string().nullable(),
    project: z.string(),
    state: jobState,
    phase: jobPhase,
    from: jobState.nullable(),
    attempt: z.int(),
    why: z.string().nullable(),
    failure: jobFailureSchema.nullable(),
  })
  .meta({ id: "JobEvent", description: "A job entered a state." });

export type JobEvent = DataOf<typeof jobEventSchema>;

const nodeEventSchema = z
  .object({
    ...head,
    type: z.literal("node"),
    node: z.string(),
    node_name: z.string().nullable(),
    state: z.string(),
    why: z.string().nullable(),
  })
  .meta({ id: "NodeEvent", description: "A node entered a state." });

export type NodeEvent = DataOf<typeof nodeEventSchema>;
export type ClusterEvent = JobEvent | NodeEvent;

const progressEventSchema = jobProgressSchema
  .extend({ job_id: z.string() })
  .meta({ id: "JobProgressEvent", description: "Progress of a job; a stream does not replay it." });

export type JobProgressEvent = DataOf<typeof progressEventSchema>;

const eventPageSchema = z
  .object({
    object: z.literal("list"),
    data: z.array(z.discriminatedUnion("type", [jobEventSchema, nodeEventSchema])),
    last_event_id: z.string().nullable().describe("The position for `after`."),
  })
  .meta({ id: "EventPage" });

export type EventPage = DataOf<typeof eventPageSchema>;

const eventQuery = z.object({
  after: z
    .string()
    .optional()
    .describe("The `id` of the last known event; `0.0` is before the oldest that is kept."),
  limit: integerParameter(1, 1_000)
    .optional()
    .describe("Maximum number of listed events; 100 by default. A stream takes none."),
  consistency,
});

/** The query of both lists of events. */
export type EventQuery = z.output<typeof eventQuery>;

const shared = {
  method: "GET",
  permission: "jobs:read",
  query: eventQuery,
  readsState: true,
  headers: ["Last-Event-ID"],
  replies: {
    200: {
      ...json(eventPageSchema),
      "text/event-stream": {
        job: jobEventSchema,
        node: nodeEventSchema,
        progress: progressEventSchema,
      },
    },
  },
} as const;

export const eventOperations = {
  list: {
    ...shared,
    operationId: "events.list",
    path: "/api/v1/events",
    summary: "All events: a list, or a stream with `Accept: text/event-stream`.",
  },
  ofJob: {
    ...shared,
    operationId: "jobs.stream",
    path: "/api/v1/jobs/{id}/events",
    summary: "A job's events: a list, or a stream with `Accept: text/event-stream`.",
  },
} as const satisfies Record<string, ApiOperation>;
