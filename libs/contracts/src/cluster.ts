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
  /** Up to here its log is known to agree with the leader's; null where no leader tells. */
  match: count.nullable().optional(),
  /** Entries that the leader has committed and this one is not known to have. */
  lag: count.nullable().optional(),
  /** True of one that has long lacked what is committed. */
  behind: z.boolean().optional(),
});

/** The reply of GET /cluster/status; what is optional is absent on a master without a group. */
export const clusterStatusReply = z.object({
  status: z.enum(["ok", "degraded"]),
  version: z.string(),
  uptime_seconds: z.number(),
  cluster: z.string().optional(),
  answered_by: name.optional(),
  leader: name.nullable(),
  may_be_stale: z.boolean().optional(),
  /** ok: all voters are reached and up to date; degraded: a majority; unavailable: changes are refused. */
  health: z.enum(["ok", "degraded", "unavailable"]),
  quorum: z.object({
    voters: count,
    /** Voters that a change needs. */
    required: count,
    /** Voters that the leader hears of; without one, those that this master is connected to. */
    reachable: count,
    has_quorum: z.boolean(),
  }),
  term: count.optional(),
  commit: count.optional(),
  applied: count.optional(),
  snapshot_index: count.optional(),
  commands: count.optional(),
  state_hash: z.string().optional(),
  /** The version of the replicated state's rules; it rises when all masters support the next one. */
  cluster_version: z.int().optional(),
  /** The highest that the answering master supports. */
  supported_cluster_version: z.int().optional(),
  masters: z.array(masterView),
  workers: z.object({ attached: count }),
  parameter_servers: z.object({ attached: count }),
  /** Simulated ones do not exist, and are among the total. */
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
  /** Whom it is for: the node's certificate, or a master's place in the group, bears the name. */
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/),
  ttl_seconds: z.int().min(10).max(86_400).default(3_600),
});

/** Milliseconds; null where nothing was measured. */
const quantiles = z.object({ p50: z.number().nullable(), p99: z.number().nullable() });

/** Figures of jobs, the same by every master but for `scheduler`. */
const jobFigures = z.object({
  by_state: z.record(z.string(), count),
  /** Jobs that wait; one with several reasons counts under each. */
  pending_by_reason: z.record(z.string(), count),
  /** Of the latest jobs: from submission to admission, and to the first reservation of places. */
  admission_ms: quantiles,
  start_ms: quantiles,
  gpus: z.object({
    /** Devices that take work: sick ones and those of drained nodes are not among them. */
    total: z.number().min(0),
    held: z.number().min(0),
    quarantined: count,
    /** Devices that do not exist, on any node. */
    simulated: count,
    idle_percent: z.number(),
    /** Of what is free, the share on devices of which a part is held. */
    fragmentation_percent: z.number(),
  }),
  /** By project, of the accounting window of 30 days. */
  gpu_hours: z.record(z.string(), z.number().min(0)),
  /** Of the rounds that the answering master led since its start. */
  scheduler: z.object({
    rounds: count,
    starts: count,
    round_ms: quantiles,
    /** By why, what of the plans did not hold any more when they were applied. */
    refused: z.record(z.string(), count),
  }),
});

/** The reply of GET /cluster/metrics. Rates are over the last seconds, as many as `window_seconds`. */
export const clusterMetricsReply = z.object({
  object: z.literal("cluster.metrics"),
  timestamp: z.iso.datetime(),
  window_seconds: z.number().min(0),
  workers: z.object({ total: count, by_state: z.record(z.string(), count) }),
  parameter_servers: z.object({ total: count }),
  /** Attached nodes that do not work for the answering master's cluster or its leader. */
  nodes_refusing: z.object({ worker: count, parameter_server: count }),
  gpus: z.object({
    total: count,
    /** Devices of the total that do not exist. */
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
  /** Calls that wait: on this master for a replica, and in the engines. */
  queues: z.object({ dispatch: count, engines: count }),
  tokens: z.object({
    prompt_total: count,
    generated_total: count,
    prompt_per_second: z.number().min(0),
    generated_per_second: z.number().min(0),
  }),
  jobs: jobFigures,
  /** What the masters' state takes in memory, by the kind of record, and what it may take. */
  state: z.record(z.string(), z.object({ bytes, limit_bytes: bytes })),
  /** As the master that answers sees it; null outside a group. */
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
      /** From a proposal until it was applied on this master; null where there was none. */
      apply_latency_ms: z.number().min(0).nullable(),
      peers: z.array(z.object({ master: name, lag: count })),
    })
    .nullable(),
});

export type ClusterMetricsReply = z.infer<typeof clusterMetricsReply>;

/** What one holder has of a node: a replica of a served model, or a task of a job. */
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
 * Offered: what the node has. In use: what holders were given. Available: what further jobs may be
 * given. Measured: what its system reports.
 */
const amount = z.object({
  offered: z.number(),
  in_use: z.number(),
  available: z.number().min(0),
  measured: z.number(),
});

const gpuPool = z.object({
  type: z.string(),
  /** The devices do not exist. */
  simulated: z.boolean(),
  count: count,
  in_use: z.number().min(0),
  available: z.number().min(0),
  /** Sick, and taken out. */
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
    /** What belongs to no node; `in_use` is what running jobs asked for. */
    shared_storage_gb: z.object({ offered: z.number(), in_use: z.number(), available: z.number() }),
  }),
  nodes: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      kind: z.enum(["worker", "parameter-server"]),
      /** `draining` and `drained` as well, on nodes that run jobs; they are available to none. */
      state: z.string(),
      executors: z.array(z.string()),
      labels: z.record(z.string(), z.string()),
      taints: z.array(z.string()),
      /** Empty where unknown. */
      rack: z.string(),
      /** The InfiniBand fabric; empty where there is none. */
      fabric: z.string(),
      /** 0 where nobody has said. */
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

/** The body of POST /cluster/transfer, which may be absent: the name of the master that shall lead. */
export const transferRequest = z.strictObject({ to: z.string().optional() });
