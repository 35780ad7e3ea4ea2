import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { pageQuery, pageSchema } from "./parameters.ts";

const strategy = z
  .enum(["binpack", "spread", "fragmentation"])
  .describe("How the jobs of the queue are placed.");

/** The body of PUT /queues/{name}. */
export const putQueueRequest = z
  .strictObject({
    strategy: strategy.default("fragmentation"),
    max_length: z
      .int()
      .min(0)
      .max(100_000)
      .optional()
      .describe("Maximum live jobs; unlimited if absent."),
  })
  .meta({ id: "QueueSettings" });

/** How the jobs of a queue are placed, and its maximum length. */
export type QueueSettings = z.input<typeof putQueueRequest>;

const queueSchema = z
  .object({
    id: z.string(),
    object: z.literal("queue"),
    name: z.string(),
    strategy,
    length: z.int().describe("Its live jobs."),
    max_length: z.int().nullable().describe("Null is unlimited."),
  })
  .meta({ id: "Queue", description: "A queue: how its jobs are placed, and its length." });

export type Queue = DataOf<typeof queueSchema>;

export const queueOperations = {
  list: {
    operationId: "queues.list",
    method: "GET",
    path: "/api/v1/queues",
    permission: "jobs:read",
    summary: "Lists the queues with their strategies and lengths.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(queueSchema)) },
  },
  set: {
    operationId: "queues.set",
    method: "PUT",
    path: "/api/v1/queues/{name}",
    permission: "cluster:admin",
    summary: "Makes a queue, or sets how its jobs are placed and its maximum length.",
    headers: ["Idempotency-Key"],
    body: putQueueRequest,
    replies: { 200: json(queueSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
