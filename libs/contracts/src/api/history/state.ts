import { z } from "zod";
import { jobExplanationSchema } from "../job-replies.ts";
import { type ApiOperation, type DataOf, json } from "../operation.ts";
import { integerParameter } from "../parameters.ts";

/** What of a past state can be listed. */
const PAST_COLLECTIONS = [
  "keys",
  "roles",
  "bindings",
  "service_accounts",
  "settings",
  "limits",
  "projects",
  "models",
  "workers",
  "jobs",
] as const;

export type PastCollection = (typeof PAST_COLLECTIONS)[number];

const EXPECTED_POSITION = "expected a position of the log, as `applied` of GET /cluster/status";
const at = z
  .string(EXPECTED_POSITION)
  .regex(/^[1-9]\d{0,14}$/, EXPECTED_POSITION)
  .transform(Number)
  .pipe(z.int())
  .describe("A position of the log, as `applied` of GET /cluster/status.");

const stateQuery = z.object({
  at,
  collection: z
    .enum(PAST_COLLECTIONS, `expected one of ${PAST_COLLECTIONS.join(", ")}`)
    .optional()
    .describe("What to list; without it only counts are returned."),
  limit: integerParameter(1, 1_000).default(100).describe("Maximum number of items."),
  after: z
    .string("expected one value")
    .max(512)
    .optional()
    .describe("The `id` of the item before."),
});

const moment = z.object({
  at: z.int(),
  time: z.iso.datetime().describe("The time of the last change up to that position."),
  first_kept: z.int().describe("The earliest position whose state this master can show."),
});

const pastState = moment
  .extend({
    object: z.literal("cluster.state"),
    cluster_version: z.int(),
    commands: z.int().describe("Commands applied since the cluster began."),
    state_hash: z.string().describe("Equal on every master."),
    counts: z.record(z.string(), z.int()).describe("Records by kind; of secrets too."),
    data: z
      .array(z.looseObject({ id: z.string() }))
      .describe("Items of the collection, by id; no secrets, and no job's environment."),
    has_more: z.boolean(),
  })
  .meta({ id: "PastState" });

export type PastState = DataOf<typeof pastState>;

const decision = moment
  .extend({
    object: z.literal("scheduling_decision"),
    job: z.string(),
    state: z.string().describe("The job's state then."),
    verdict: z
      .enum(["starts", "waits", "placed", "ended"])
      .describe("What the scheduler decides with that state: `placed` has its places already."),
    placement: z.array(z.object({ rank: z.int(), node: z.string(), devices: z.array(z.int()) })),
    inputs: z
      .object({
        nodes: z.int(),
        ready_nodes: z.int(),
        queued: z.int(),
        position: z.int().nullable().describe("In the queue, from 1; null for one not in it."),
        max_concurrent_jobs: z.number(),
        overcommit_ratio: z.number(),
        strategy: z.string().describe("Of the job's queue."),
      })
      .describe("What the decision was made of. Scores of plugins are not among them."),
    explanation: jobExplanationSchema.nullable().describe("Null if the job does not wait."),
  })
  .meta({ id: "SchedulingDecision" });

export type SchedulingDecision = DataOf<typeof decision>;

/** Past states of the cluster. */
export const historyOperations = {
  state: {
    operationId: "cluster.state",
    method: "GET",
    path: "/api/v1/cluster/state",
    permission: "cluster:admin",
    summary: "The state at a position of the log that the answering master still keeps; else 410.",
    query: stateQuery,
    replies: { 200: json(pastState) },
  },
  decision: {
    operationId: "cluster.decision",
    method: "GET",
    path: "/api/v1/cluster/state/jobs/{id}/decision",
    permission: "cluster:admin",
    summary: "Replays what the scheduler decides of a job with the state at a position of the log.",
    query: z.object({ at }),
    replies: { 200: json(decision) },
  },
} as const satisfies Record<string, ApiOperation>;

export type PastStateQuery = z.output<typeof stateQuery>;
