import { z } from "zod";
import { replicaSchema } from "./models.ts";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { integerParameter, pageQuery, pageSchema, stateQuery, time } from "./parameters.ts";

export const drainWorkerRequest = z
  .strictObject({
    deadline_seconds: z
      .number()
      .min(0)
      .max(86_400)
      .default(600)
      .describe("When running tasks are killed, with or without a checkpoint."),
  })
  .meta({ id: "DrainSpec" });

const gpuSchema = z
  .object({
    index: z.int(),
    uuid: z.string(),
    name: z.string(),
    memory_bytes: z.number(),
    memory_used_bytes: z.number(),
    utilization_percent: z.number(),
    temperature_celsius: z.number(),
    power_watts: z.number(),
    simulated: z.boolean(),
    fault: z.string().nullable(),
  })
  .meta({ id: "Gpu" });

const nodeJobsSchema = z
  .object({
    state: z.enum(["ready", "draining", "drained", "lost"]),
    index: z.int().describe("The log index of its latest change."),
    drain_by: time.nullable(),
    lost_at: time.nullable(),
    labels: z.record(z.string(), z.string()),
    taints: z.array(z.string()),
    rack: z.string(),
    fabric: z.string(),
    executors: z.array(z.string()),
    algorithms: z.array(z.string()),
    gpu_type: z.string(),
    gpu_memory_gb: z.number(),
    gpus: z.number(),
    gpus_held: z.number(),
    simulated: z.boolean(),
    quarantined: z
      .array(z.object({ device: z.int(), why: z.string(), at: time }))
      .describe("Unhealthy devices, which take no work."),
    serving: z.array(z.object({ deployment: z.string(), devices: z.array(z.int()) })),
    max_tasks: z.int().nullable().describe("Tasks that it takes at a time; null for no limit."),
    tasks: z.array(
      z.object({
        job_id: z.string(),
        attempt: z.int(),
        rank: z.int(),
        phase: z.string(),
        devices: z.array(z.int()),
      }),
    ),
  })
  .meta({ id: "NodeJobs", description: "A node's capacity for jobs and its allocation." });

export type NodeJobs = DataOf<typeof nodeJobsSchema>;

const workerSchema = z
  .object({
    id: z.string(),
    object: z.literal("worker"),
    kind: z.enum(["worker", "parameter-server"]),
    name: z.string(),
    address: z.string(),
    version: z.string().nullable(),
    task_isolation: z
      .string()
      .nullable()
      .describe("How a worker isolates its tasks; null if unknown."),
    status: z
      .string()
      .describe("`suspect` before the cluster declares a silent node lost; `refusing`: see below."),
    attached: z.boolean().describe("To the answering master."),
    silent_seconds: z.int().describe("Since the last heartbeat at the answering master."),
    refuses_leader: z
      .string()
      .nullable()
      .describe("Why a node with the status `refusing` refuses the cluster or its leader."),
    executor_fault: z
      .string()
      .nullable()
      .describe(
        "Why a worker takes no tasks now: its executor fails or its disk is full, which is tried again.",
      ),
    attached_at: time.nullable(),
    last_seen_at: time.nullable(),
    cpu_percent: z.number().nullable(),
    cpu_count: z.number().nullable(),
    memory_bytes: z.number().nullable(),
    memory_used_bytes: z.number().nullable(),
    gpus: z.array(gpuSchema),
    replicas: z.array(replicaSchema.extend({ deployment: z.string() })),
    jobs: nodeJobsSchema.nullable().describe("Null on a node that runs no jobs."),
    shards: z
      .object({ held: z.int(), places: z.int() })
      .nullable()
      .describe("Of a parameter server; null on other nodes."),
  })
  .meta({ id: "Worker", description: "A node and its allocation to jobs." });

export type Worker = DataOf<typeof workerSchema>;

/** Nodes are also listed without pages, in one reply. */
const workersQuery = pageQuery.extend({
  limit: integerParameter(1, 1_000)
    .optional()
    .describe("Maximum number of items; without it the list is one page."),
});

export const workerOperations = {
  list: {
    operationId: "workers.list",
    method: "GET",
    path: "/api/v1/workers",
    permission: "cluster:read",
    summary: "Lists the nodes: those attached to this master, and those of jobs.",
    query: workersQuery,
    readsState: true,
    replies: { 200: json(pageSchema(workerSchema)) },
  },
  get: {
    operationId: "workers.get",
    method: "GET",
    path: "/api/v1/workers/{id}",
    permission: "cluster:read",
    summary: "Shows one node.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(workerSchema) },
  },
  drain: {
    operationId: "workers.drain",
    method: "POST",
    path: "/api/v1/workers/{id}/drain",
    permission: "cluster:admin",
    summary: "Has the node's tasks checkpoint and move; it takes no new work.",
    headers: ["Idempotency-Key"],
    body: drainWorkerRequest,
    isBodyOptional: true,
    status: 202,
    replies: { 202: json(workerSchema) },
  },
  resume: {
    operationId: "workers.resume",
    method: "POST",
    path: "/api/v1/workers/{id}/resume",
    permission: "cluster:admin",
    summary: "Ends a drain, and returns healthy devices to service: the node takes work again.",
    headers: ["Idempotency-Key"],
    status: 202,
    replies: { 202: json(workerSchema) },
  },
  revoke: {
    operationId: "workers.revoke",
    method: "POST",
    path: "/api/v1/workers/{id}/revoke",
    permission: "cluster:admin",
    summary: "Revokes the node's certificates: masters refuse it until it joins again.",
    headers: ["Idempotency-Key"],
    status: 202,
    replies: { 202: json(workerSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
