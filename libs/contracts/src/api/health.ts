import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "./operation.ts";

const healthSchema = z
  .object({
    status: z.string().describe("`ok` or `degraded`."),
    version: z.string(),
    uptime: z.number().describe("Seconds."),
    refusing_nodes: z
      .int()
      .optional()
      .describe("Attached nodes that refuse this master's cluster or its leader."),
    detail: z.string().optional().describe("Why the master is unhealthy."),
  })
  .meta({ id: "Health" });

export type MasterHealth = DataOf<typeof healthSchema>;

const component = { status: z.string(), detail: z.string().describe("Empty if healthy.") };

const detailedHealthSchema = z
  .object({
    status: z.string(),
    timestamp: z.iso.datetime(),
    version: z.string(),
    uptime_seconds: z.number(),
    components: z.object({
      api: z.object({ status: z.enum(["ok", "draining"]), in_flight: z.int() }),
      control: z.object(component),
      workers: z.object({ ...component, attached: z.int() }),
      nodes: z.object({ ...component, refusing: z.int() }),
      access: z.object(component).describe("Whether the roles of the `--auth-file` are set."),
    }),
    resource_usage: z.object({
      cpu_percent: z.number(),
      memory_percent: z.number(),
      disk_percent: z.number(),
    }),
  })
  .meta({ id: "DetailedHealth" });

export type DetailedHealth = DataOf<typeof detailedHealthSchema>;

/** The operational paths: unversioned, and open to probes and scrapers. */
export const healthOperations = {
  health: {
    operationId: "cluster.health",
    method: "GET",
    path: "/health",
    permission: "public",
    summary: "Shows this master's version and uptime; degraded if nodes refuse its leader.",
    replies: { 200: json(healthSchema) },
  },
  detailed: {
    operationId: "health.detailed",
    method: "GET",
    path: "/health/detailed",
    permission: "public",
    summary: "Shows this master's components and its resource usage.",
    replies: { 200: json(detailedHealthSchema) },
  },
  healthz: {
    operationId: "health.healthz",
    method: "GET",
    path: "/healthz",
    permission: "public",
    summary: "Answers ok while this master runs.",
    replies: { 200: { "text/plain": "`ok`." } },
  },
  livez: {
    operationId: "health.livez",
    method: "GET",
    path: "/livez",
    permission: "public",
    summary: "Answers ok while this master runs.",
    replies: { 200: { "text/plain": "`ok`." } },
  },
  readyz: {
    operationId: "health.readyz",
    method: "GET",
    path: "/readyz",
    permission: "public",
    summary: "Answers 200 while this master takes calls; `?verbose` lists the checks.",
    query: z.object({
      verbose: z
        .union([z.string(), z.array(z.string())])
        .optional()
        .describe("With any value, lists the checks."),
    }),
    replies: {
      200: { "text/plain": "`ok`, after the checks if they are requested." },
      503: { "text/plain": "The checks, with the reasons of those that fail." },
    },
  },
  metrics: {
    operationId: "health.metrics",
    method: "GET",
    path: "/metrics",
    permission: "public",
    readsCaller: true,
    summary:
      "Shows the metrics in Prometheus' text format. Those of projects, of jobs and of models of one project need `cluster:read` and `jobs:read` in the whole cluster.",
    replies: { 200: { "text/plain": "Prometheus' text format." } },
  },
} as const satisfies Record<string, ApiOperation>;
