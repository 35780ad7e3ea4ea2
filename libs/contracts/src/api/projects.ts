import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { pageQuery, pageSchema, stateQuery, time } from "./parameters.ts";

/** The body of PUT /projects/{name}. */
export const putProjectRequest = z
  .strictObject({
    weight: z.number().positive().max(1_000_000).default(1).describe("The fair-share weight."),
    quota: z
      .strictObject({
        gpu_count: z.number().min(0).max(1_000_000).optional(),
        gpu_hours: z
          .number()
          .min(0)
          .max(1_000_000_000)
          .optional()
          .describe("In a window of 30 days."),
        queue_length: z.int().min(0).max(100_000).optional(),
        storage_bytes: z
          .int()
          .min(0)
          .max(Number.MAX_SAFE_INTEGER)
          .optional()
          .describe(
            "Of files, batches, responses, conversations, artifacts and checkpoints together.",
          ),
      })
      .prefault({})
      .describe("Absent limits are unlimited."),
  })
  .meta({ id: "ProjectSettings" });

/** A project's weight and quota; absent limits are unlimited. */
export type ProjectSettings = z.input<typeof putProjectRequest>;

const projectSchema = z
  .object({
    id: z.string(),
    object: z.literal("project"),
    name: z.string(),
    weight: z.number(),
    quota: z
      .object({
        gpu_count: z.number().nullable(),
        gpu_hours: z.number().nullable(),
        queue_length: z.number().nullable(),
        storage_bytes: z.int().nullable(),
      })
      .describe("Null is unlimited."),
    usage: z
      .object({
        gpus: z.number(),
        cpu_cores: z.number(),
        memory_mib: z.number(),
        gpu_hours: z.number().describe("Since `window_start`."),
        window_start: time,
        storage_bytes: z.int().describe("All that counts for the quota."),
        storage: z
          .object({
            documents: z.int().describe("Files, batches, responses and conversations."),
            artifacts: z.int().describe("Of jobs that are not forgotten."),
            checkpoints: z.int().describe("Of such jobs, if they can resume or have failed."),
          })
          .describe("In bytes."),
      })
      .describe("What its jobs hold, their GPU-hours, and what it stores."),
  })
  .meta({ id: "Project", description: "A project: its quota and its usage." });

export type Project = DataOf<typeof projectSchema>;

export const projectOperations = {
  list: {
    operationId: "projects.list",
    method: "GET",
    path: "/api/v1/projects",
    permission: "jobs:read",
    summary: "Lists the projects with their quotas and usage.",
    query: pageQuery,
    readsState: true,
    replies: { 200: json(pageSchema(projectSchema)) },
  },
  get: {
    operationId: "projects.get",
    method: "GET",
    path: "/api/v1/projects/{name}",
    permission: "jobs:read",
    summary: "Shows a project with its quota and usage.",
    query: stateQuery,
    readsState: true,
    replies: { 200: json(projectSchema) },
  },
  set: {
    operationId: "projects.set",
    method: "PUT",
    path: "/api/v1/projects/{name}",
    permission: "cluster:admin",
    summary: "Sets a project's weight and quota.",
    headers: ["Idempotency-Key"],
    body: putProjectRequest,
    replies: { 200: json(projectSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
