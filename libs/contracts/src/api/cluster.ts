import { z } from "zod";
import { type ApiOperation, type DataOf, json } from "./operation.ts";
import { booleanParameter, listSchema, stateQuery, time } from "./parameters.ts";

const count = z.int().min(0);
const bytes = z.number().min(0);
const name = z.string();

const masterView = z.object({
  id: name,
  member: z.int().optional(),
  role: z.enum(["leader", "follower", "learner"]),
  address: z.string().optional(),
  connected: z.boolean().optional(),
  match: count
    .nullable()
    .optional()
    .describe(
      "The index up to which its log is known to match the leader's; null without a leader's answer.",
    ),
  lag: count
    .nullable()
    .optional()
    .describe("Entries committed by the leader that this one is not known to have."),
  behind: z
    .boolean()
    .optional()
    .describe("True if it has lagged behind the commit index for long."),
});

/** The reply of GET /cluster/status; optional fields are absent on a master without a group. */
const clusterStatusReply = z
  .object({
    status: z.enum(["ok", "degraded"]),
    version: z.string(),
    authority_sha256: z
      .string()
      .nullable()
      .describe("Of the certificate authority of the nodes, as in join tokens; null without TLS."),
    uptime_seconds: z.number(),
    cluster: z.string().optional(),
    answered_by: name.optional(),
    leader: name.nullable(),
    may_be_stale: z.boolean().optional(),
    health: z
      .enum(["ok", "degraded", "unavailable"])
      .describe(
        "ok: all voters are reachable and up to date; degraded: a majority; unavailable: no changes.",
      ),
    quorum: z.object({
      voters: count,
      required: count.describe("Voters that a change needs."),
      reachable: count.describe(
        "Voters reachable by the leader; without one, those connected to this master.",
      ),
      has_quorum: z.boolean(),
    }),
    term: count.optional(),
    commit: count.optional(),
    applied: count.optional(),
    snapshot_index: count.optional(),
    commands: count.optional(),
    state_hash: z.string().optional(),
    cluster_version: z
      .int()
      .optional()
      .describe(
        "The version of the replicated state's rules; raised when all masters support the next one.",
      ),
    supported_cluster_version: z
      .int()
      .optional()
      .describe("The highest version that the answering master supports."),
    masters: z.array(masterView),
    workers: z.object({ attached: count }),
    parameter_servers: z.object({ attached: count }),
    gpus: z
      .object({ total: count, simulated: count })
      .describe("Simulated ones are included in the total."),
    models: z.object({ registered: count }),
    deployments: z.object({ registered: count }),
    replicas: z.object({ ready: count, total: count }),
    requests: z.object({ in_flight: count, running: count, waiting: count }),
  })
  .meta({
    id: "ClusterStatus",
    description: "The cluster's masters, nodes, models and running calls.",
  });

export type ClusterStatusReply = z.infer<typeof clusterStatusReply>;

/** The body of POST /cluster/join-tokens. */
const joinTokenRequest = z
  .strictObject({
    role: z.enum(["master", "worker", "parameter-server"]),
    name: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/)
      .describe("The name in the node's certificate, or of the master in the group."),
    ttl_seconds: z.int().min(10).max(86_400).default(3_600),
  })
  .meta({ id: "JoinTokenSpec" });

/** Milliseconds; null without values. */
const quantiles = z.object({ p50: z.number().nullable(), p99: z.number().nullable() });

/** Metrics of jobs, equal on every master except `scheduler`. */
const jobFigures = z.object({
  by_state: z.record(z.string(), count),
  pending_by_reason: z
    .record(z.string(), count)
    .describe("Waiting jobs; one with several reasons counts under each."),
  admission_ms: quantiles.describe(
    "Of the latest jobs: from submission to admission, and to the first reservation of places.",
  ),
  start_ms: quantiles,
  gpus: z.object({
    total: z
      .number()
      .min(0)
      .describe("Devices that take work, without unhealthy ones and those of drained nodes."),
    held: z.number().min(0),
    quarantined: count,
    simulated: count.describe("Simulated devices on any node."),
    idle_percent: z.number(),
    fragmentation_percent: z
      .number()
      .describe("Of the free share, the part on partly used devices."),
  }),
  gpu_hours: z
    .record(z.string(), z.number().min(0))
    .describe(
      "By project of those whose jobs the caller may see, in the accounting window of 30 days.",
    ),
  storage: z
    .record(z.string(), z.object({ bytes: count, limit_bytes: count.nullable() }))
    .describe("What each of these projects stores, and its quota."),
  scheduler: z
    .object({
      rounds: count,
      starts: count,
      round_ms: quantiles,
      refused: z
        .record(z.string(), count)
        .describe("By reason, decisions of plans that were no longer valid at their apply."),
    })
    .describe("Of the rounds that the answering master led since its start."),
});

/** The reply of GET /cluster/metrics. Rates cover the last `window_seconds`. */
const clusterMetricsReply = z
  .object({
    object: z.literal("cluster.metrics"),
    timestamp: z.iso.datetime(),
    window_seconds: z.number().min(0),
    workers: z.object({ total: count, by_state: z.record(z.string(), count) }),
    parameter_servers: z.object({ total: count }),
    nodes_refusing: z
      .object({ worker: count, parameter_server: count })
      .describe("Attached nodes that refuse the answering master's cluster or its leader."),
    gpus: z.object({
      total: count,
      simulated: count.describe("Simulated devices of the total."),
      used: count,
      memory_bytes: bytes,
      memory_used_bytes: bytes,
      utilization_percent: z.number().describe("The mean over all GPUs, 0..100."),
    }),
    cpu: z.object({ cores: count, used_cores: z.number().min(0) }),
    memory: z.object({ total_bytes: bytes, used_bytes: bytes }),
    replicas: z.object({ total: count, ready: count }),
    requests: z.object({ running: count, waiting: count }),
    queues: z
      .object({
        dispatch: count,
        engines: count,
        models: z
          .array(
            z.object({
              deployment: name,
              waiting: count,
              by_priority: z.object({ batch: count, normal: count, interactive: count }),
              longest_wait_ms: count,
            }),
          )
          .describe("The longest queues of this master, at most 100."),
      })
      .describe("Waiting calls: on this master for a replica, and in the engines."),
    tokens: z.object({
      prompt_total: count,
      generated_total: count,
      prompt_per_second: z.number().min(0),
      generated_per_second: z.number().min(0),
    }),
    jobs: jobFigures,
    state: z
      .record(z.string(), z.object({ bytes, limit_bytes: bytes }))
      .describe("Memory and limit of the masters' state by kind of record."),
    raft: z
      .object({
        answered_by: name,
        leader: name.nullable(),
        term: count,
        commit_index: count,
        applied_index: count,
        proposals_total: count,
        proposals_failed: count,
        proposals_per_second: z.number().min(0),
        apply_latency_ms: z
          .number()
          .min(0)
          .nullable()
          .describe("From a proposal until its apply on this master; null without one."),
        peers: z.array(z.object({ master: name, lag: count })),
      })
      .nullable()
      .describe("As seen by the answering master; null outside a group."),
  })
  .meta({
    id: "ClusterMetrics",
    description: "The cluster's figures; rates cover the last `window_seconds`.",
  });

export type ClusterMetricsReply = z.infer<typeof clusterMetricsReply>;

/** One holder's use of a node: a replica of a model, or a task of a job. */
const resourceUse = z.object({
  kind: z.enum(["replica", "task"]),
  id: z.string().describe("The deployment of a replica, or the id of a job."),
  cpu_cores: z.number().min(0),
  memory_bytes: bytes,
  local_ssd_bytes: bytes,
  gpus: z
    .array(z.object({ index: count, share: z.number().min(0).max(1) }))
    .describe("Indexes of the node's GPUs, and the share of each, 0..1."),
});

export type ResourceUse = z.infer<typeof resourceUse>;

/**
 * Offered: the node's capacity. In use: assigned to holders. Available: assignable to further jobs.
 * Measured: reported by its system.
 */
const amount = z.object({
  offered: z.number(),
  in_use: z.number(),
  available: z.number().min(0),
  measured: z.number(),
});

/** Places for tasks of jobs; each task takes one, however little else it requests. */
const taskPlaces = z.object({
  offered: count.nullable().describe("Null where a worker sets no limit."),
  in_use: count,
  available: count.nullable(),
});

const gpuPool = z.object({
  type: z.string(),
  simulated: z.boolean().describe("The devices are simulated."),
  count: count,
  in_use: z.number().min(0),
  available: z.number().min(0),
  quarantined: count.describe("Unhealthy devices, which take no work."),
  memory_bytes_each: bytes,
});

/** The reply of GET /cluster/resources. */
const clusterResourcesReply = z
  .object({
    object: z.literal("cluster.resources"),
    timestamp: z.iso.datetime(),
    totals: z.object({
      nodes: count,
      cpu_cores: amount,
      memory_bytes: amount,
      local_ssd_bytes: amount,
      tasks: taskPlaces,
      gpus: z.array(gpuPool),
      shared_storage_gb: z
        .object({ offered: z.number(), in_use: z.number(), available: z.number() })
        .describe("Cluster-wide resources; `in_use` is what running jobs requested."),
    }),
    nodes: z.array(
      z.object({
        id: z.string(),
        name: z.string(),
        kind: z.enum(["worker", "parameter-server"]),
        state: z
          .string()
          .describe(
            "Also `draining` and `drained`, on nodes for jobs; those have nothing available.",
          ),
        executors: z.array(z.string()),
        labels: z.record(z.string(), z.string()),
        taints: z.array(z.string()),
        rack: z.string().describe("Empty if unknown."),
        fabric: z.string().describe("The InfiniBand fabric; empty for none."),
        io_operations_per_sec: z.number().min(0).describe("0 if unknown."),
        network_bandwidth_gbps: z.number().min(0),
        cpu_cores: amount,
        memory_bytes: amount,
        local_ssd_bytes: amount,
        tasks: taskPlaces,
        gpus: z.array(gpuPool),
        uses: z.array(resourceUse),
      }),
    ),
  })
  .meta({
    id: "ClusterResources",
    description: "Capacity and use of each node, with totals.",
  });

export type ClusterResourcesReply = z.infer<typeof clusterResourcesReply>;

const transferRequest = z.strictObject({
  to: z.string().optional().describe("The name of the new leader; any other master by default."),
});

/** The role and name of a node that may join. */
export type JoinTokenSpec = z.input<typeof joinTokenRequest>;

const joinTokenSchema = z
  .object({
    object: z.literal("cluster.join_token"),
    role: z.enum(["master", "worker", "parameter-server"]),
    name: z.string(),
    tls: z.boolean().describe("Whether the cluster's nodes use TLS among each other."),
    token: z.string(),
    expires_at: time,
    secrets_key: z
      .string()
      .nullable()
      .describe("Id of the key that encrypts the state; null without encryption."),
  })
  .meta({ id: "JoinToken", description: "A token with which one node may join, once." });

export type IssuedJoinToken = DataOf<typeof joinTokenSchema>;

const routeSchema = z
  .object({
    method: z.string(),
    path: z.string().describe("With `:name` parameters."),
    permission: z
      .string()
      .optional()
      .describe("The required permission; a route without one is denied."),
    summary: z.string(),
  })
  .meta({ id: "Route" });

export type Route = DataOf<typeof routeSchema>;

const statusReply = { 200: json(clusterStatusReply) } as const;

export const clusterOperations = {
  status: {
    operationId: "cluster.status",
    method: "GET",
    path: "/api/v1/cluster/status",
    permission: "cluster:read",
    summary: "Shows the cluster's masters, nodes, models and running calls.",
    query: stateQuery,
    readsState: true,
    replies: statusReply,
  },
  metrics: {
    operationId: "cluster.metrics",
    method: "GET",
    path: "/api/v1/cluster/metrics",
    permission: "cluster:read",
    summary: "Shows cluster metrics: nodes, GPUs, calls, tokens, queues, jobs, Raft.",
    replies: { 200: json(clusterMetricsReply) },
  },
  resources: {
    operationId: "cluster.resources",
    method: "GET",
    path: "/api/v1/cluster/resources",
    permission: "cluster:read",
    summary: "Shows the capacity, use and free resources of each node, with totals.",
    replies: { 200: json(clusterResourcesReply) },
  },
  endpoints: {
    operationId: "cluster.endpoints",
    method: "GET",
    path: "/api/v1/endpoints",
    permission: "authenticated",
    summary: "Lists every route and the permission that it needs.",
    replies: { 200: json(listSchema(routeSchema)) },
  },
  openapi: {
    operationId: "cluster.openapi",
    method: "GET",
    path: "/api/v1/openapi.json",
    permission: "public",
    summary: "Shows the OpenAPI document of this API.",
    replies: { 200: json(z.looseObject({ openapi: z.string() })) },
  },
  transfer: {
    operationId: "cluster.transfer",
    method: "POST",
    path: "/api/v1/cluster/transfer",
    permission: "cluster:admin",
    summary: "Transfers leadership to the master `to`, or to any other.",
    body: transferRequest,
    isBodyOptional: true,
    status: 202,
    replies: { 202: json(clusterStatusReply) },
  },
  snapshot: {
    operationId: "cluster.snapshot",
    method: "POST",
    path: "/api/v1/cluster/snapshot",
    permission: "cluster:admin",
    summary: "Takes a snapshot of this master's state and truncates its log.",
    replies: statusReply,
  },
  backup: {
    operationId: "cluster.backup",
    method: "GET",
    path: "/api/v1/cluster/backup",
    permission: "cluster:admin",
    summary: "Downloads a backup of the state, secrets and the contents of documents.",
    query: z.object({
      consistency: z
        .enum(["strong", "stale"], "expected `strong` or `stale`")
        .default("strong")
        .describe("`stale` reads the state of the answering master."),
      documents: z
        .enum(["true", "false"], "expected `true` or `false`")
        .default("true")
        .describe("`false` leaves out the contents of documents."),
    }),
    replies: { 200: { "application/octet-stream": "The backup file." } },
  },
  removeMaster: {
    operationId: "cluster.removeMaster",
    method: "DELETE",
    path: "/api/v1/cluster/masters/{name}",
    permission: "cluster:admin",
    summary: "Removes a master from the group; its process then exits.",
    query: z.object({
      force: booleanParameter(["true"], ["false"]).describe(
        "`true` removes it also where the others lack contents of documents, which may then be lost.",
      ),
    }),
    replies: statusReply,
  },
  createJoinToken: {
    operationId: "cluster.createJoinToken",
    method: "POST",
    path: "/api/v1/cluster/join-tokens",
    permission: "cluster:enroll",
    summary:
      "Creates a single-use token with which one node, of a role and name, may join; of a master only with cluster:admin.",
    body: joinTokenRequest,
    replies: { 200: json(joinTokenSchema) },
  },
} as const satisfies Record<string, ApiOperation>;
