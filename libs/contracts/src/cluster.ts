import { z } from "zod";

const count = z.int().min(0);
const bytes = z.number().min(0);
const name = z.string();

const masterView = z.object({
  id: name,
  member: z.int().optional(),
  role: z.enum(["leader", "follower", "learner"]),
  address: z.string().optional(),
  connected: z.boolean().optional(),
  /**
   * The index up to which its log is known to match the leader's; null without a leader's answer.
   */
  match: count.nullable().optional(),
  /** Entries committed by the leader that this one is not known to have. */
  lag: count.nullable().optional(),
  /** True if it has lagged behind the commit index for long. */
  behind: z.boolean().optional(),
});

/** The reply of GET /cluster/status; optional fields are absent on a master without a group. */
export const clusterStatusReply = z.object({
  status: z.enum(["ok", "degraded"]),
  version: z.string(),
  uptime_seconds: z.number(),
  cluster: z.string().optional(),
  answered_by: name.optional(),
  leader: name.nullable(),
  may_be_stale: z.boolean().optional(),
  /** ok: all voters are reachable and up to date; degraded: a majority; unavailable: no changes. */
  health: z.enum(["ok", "degraded", "unavailable"]),
  quorum: z.object({
    voters: count,
    /** Voters that a change needs. */
    required: count,
    /** Voters reachable by the leader; without one, those connected to this master. */
    reachable: count,
    has_quorum: z.boolean(),
  }),
  term: count.optional(),
  commit: count.optional(),
  applied: count.optional(),
  snapshot_index: count.optional(),
  commands: count.optional(),
  state_hash: z.string().optional(),
  /** The version of the replicated state's rules; raised when all masters support the next one. */
  cluster_version: z.int().optional(),
  /** The highest version that the answering master supports. */
  supported_cluster_version: z.int().optional(),
  masters: z.array(masterView),
  workers: z.object({ attached: count }),
  parameter_servers: z.object({ attached: count }),
  /** Simulated ones are included in the total. */
  gpus: z.object({ total: count, simulated: count }),
  models: z.object({ registered: count }),
  deployments: z.object({ registered: count }),
  replicas: z.object({ ready: count, total: count }),
  requests: z.object({ in_flight: count, running: count, waiting: count }),
});

export type ClusterStatusReply = z.infer<typeof clusterStatusReply>;

/** The body of POST /cluster/join-tokens. */
export const joinTokenRequest = z.strictObject({
  role: z.enum(["master", "worker", "parameter-server"]),
  /** The name in the node's certificate, or of the master in the group. */
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/),
  ttl_seconds: z.int().min(10).max(86_400).default(3_600),
});

/** Milliseconds; null without values. */
const quantiles = z.object({ p50: z.number().nullable(), p99: z.number().nullable() });

/** Metrics of jobs, equal on every master except `scheduler`. */
const jobFigures = z.object({
  by_state: z.record(z.string(), count),
  /** Waiting jobs; one with several reasons counts under each. */
  pending_by_reason: z.record(z.string(), count),
  /** Of the latest jobs: from submission to admission, and to the first reservation of places. */
  admission_ms: quantiles,
  start_ms: quantiles,
  gpus: z.object({
    /** Devices that take work, without sick ones and those of drained nodes. */
    total: z.number().min(0),
    held: z.number().min(0),
    quarantined: count,
    /** Simulated devices on any node. */
    simulated: count,
    idle_percent: z.number(),
    /** Of the free share, the part on partly used devices. */
    fragmentation_percent: z.number(),
  }),
  /** By project, in the accounting window of 30 days. */
  gpu_hours: z.record(z.string(), z.number().min(0)),
  /** Of the rounds that the answering master led since its start. */
  scheduler: z.object({
    rounds: count,
    starts: count,
    round_ms: quantiles,
    /** By reason, decisions of plans that were no longer valid at their apply. */
    refused: z.record(z.string(), count),
  }),
});

/** The reply of GET /cluster/metrics. Rates cover the last `window_seconds`. */
export const clusterMetricsReply = z.object({
  object: z.literal("cluster.metrics"),
  timestamp: z.iso.datetime(),
  window_seconds: z.number().min(0),
  workers: z.object({ total: count, by_state: z.record(z.string(), count) }),
  parameter_servers: z.object({ total: count }),
  /** Attached nodes that refuse the answering master's cluster or its leader. */
  nodes_refusing: z.object({ worker: count, parameter_server: count }),
  gpus: z.object({
    total: count,
    /** Simulated devices of the total. */
    simulated: count,
    used: count,
    memory_bytes: bytes,
    memory_used_bytes: bytes,
    /** The mean over all GPUs, 0..100. */
    utilization_percent: z.number(),
  }),
  cpu: z.object({ cores: count, used_cores: z.number().min(0) }),
  memory: z.object({ total_bytes: bytes, used_bytes: bytes }),
  replicas: z.object({ total: count, ready: count }),
  requests: z.object({ running: count, waiting: count }),
  /** Waiting calls: on this master for a replica, and in the engines. */
  queues: z.object({ dispatch: count, engines: count }),
  tokens: z.object({
    prompt_total: count,
    generated_total: count,
    prompt_per_second: z.number().min(0),
    generated_per_second: z.number().min(0),
  }),
  jobs: jobFigures,
  /** Memory and limit of the masters' state by kind of record. */
  state: z.record(z.string(), z.object({ bytes, limit_bytes: bytes })),
  /** As seen by the answering master; null outside a group. */
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
      /** From a proposal until its apply on this master; null without one. */
      apply_latency_ms: z.number().min(0).nullable(),
      peers: z.array(z.object({ master: name, lag: count })),
    })
    .nullable(),
});

export type ClusterMetricsReply = z.infer<typeof clusterMetricsReply>;

/** One holder's use of a node: a replica of a model, or a task of a job. */
const resourceUse = z.object({
  kind: z.enum(["replica", "task"]),
  /** The deployment of a replica, or the id of a job. */
  id: z.string(),
  cpu_cores: z.number().min(0),
  memory_bytes: bytes,
  local_ssd_bytes: bytes,
  /** Indexes of the node's GPUs, and the share of each, 0..1. */
  gpus: z.array(z.object({ index: count, share: z.number().min(0).max(1) })),
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

const gpuPool = z.object({
  type: z.string(),
  /** The devices are simulated. */
  simulated: z.boolean(),
  count: count,
  in_use: z.number().min(0),
  available: z.number().min(0),
  /** Sick devices, which take no work. */
  quarantined: count,
  memory_bytes_each: bytes,
});

/** The reply of GET /cluster/resources. */
export const clusterResourcesReply = z.object({
  object: z.literal("cluster.resources"),
  timestamp: z.iso.datetime(),
  totals: z.object({
    nodes: count,
    cpu_cores: amount,
    memory_bytes: amount,
    local_ssd_bytes: amount,
    gpus: z.array(gpuPool),
    /** Resources of no node; `in_use` is what running jobs requested. */
    shared_storage_gb: z.object({ offered: z.number(), in_use: z.number(), available: z.number() }),
  }),
  nodes: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      kind: z.enum(["worker", "parameter-server"]),
      /** Also `draining` and `drained`, on nodes for jobs; those have nothing available. */
      state: z.string(),
      executors: z.array(z.string()),
      labels: z.record(z.string(), z.string()),
      taints: z.array(z.string()),
      /** Empty if unknown. */
      rack: z.string(),
      /** The InfiniBand fabric; empty for none. */
      fabric: z.string(),
      /** 0 if unknown. */
      io_operations_per_sec: z.number().min(0),
      network_bandwidth_gbps: z.number().min(0),
      cpu_cores: amount,
      memory_bytes: amount,
      local_ssd_bytes: amount,
      gpus: z.array(gpuPool),
      uses: z.array(resourceUse),
    }),
  ),
});

export type ClusterResourcesReply = z.infer<typeof clusterResourcesReply>;

/** The optional body of POST /cluster/transfer: the name of the new leader. */
export const transferRequest = z.strictObject({ to: z.string().optional() });
