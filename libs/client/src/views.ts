import type { FailureReason, JobState, submitJobRequest } from "@heddle/contracts/jobs";

/** What `jobs.create` takes: the body of POST /jobs. */
export type JobSpec = (typeof submitJobRequest)["_zod"]["input"];

/** A state in upper case, as `RUNNING`. */
export type JobPhase = Uppercase<JobState>;

/** A job that the cluster has taken in. */
export interface SubmittedJob {
  readonly job_id: string;
  /** `accepted`; of a job that was there already, under the id that was given, its own. */
  readonly state: JobState;
  readonly submitted_at: string;
}

/** Why a job, or one of its tasks, failed. */
export interface JobFailure {
  readonly reason: FailureReason;
  readonly cause: FailureReason | null;
  readonly message: string;
  readonly exit_code: number | null;
  readonly signal: string | null;
  readonly rank: number | null;
  readonly node: string | null;
  /** Null also where the cluster has forgotten the node. */
  readonly node_name: string | null;
  readonly last_lines: readonly string[];
}

/** How far a job is; all that it told. */
export interface JobProgress {
  /** 0..1. */
  readonly progress: number | null;
  readonly step: number | null;
  readonly total_steps: number | null;
  readonly loss: number | null;
  readonly reward: number | null;
  readonly steps_per_second: number | null;
  readonly tokens_per_second: number | null;
  /** What it computes with, as `onnx` on `cpu`. */
  readonly backend: string | null;
  readonly device: string | null;
  /** Sent to the parameter servers so far. */
  readonly bytes_pushed: number | null;
  /** Further numbers that the program tells. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly message: string | null;
  readonly at: string | null;
  readonly expected_end: string | null;
}

/** A job as lists show it; times are ISO 8601 UTC. */
export interface JobSummary {
  readonly id: string;
  readonly object: "job";
  readonly name: string;
  readonly project: string;
  readonly queue: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly algorithm: string | null;
  readonly state: JobState;
  readonly phase: JobPhase;
  readonly tasks: number;
  readonly gpu_count: number;
  readonly priority: number;
  readonly qos_level: string;
  readonly attempt: number;
  readonly submitted_at: string;
  readonly since: string;
  readonly first_started_at: string | null;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly progress: JobProgress | null;
  readonly failure: JobFailure | null;
}

/** One task of a job's current attempt. */
export interface JobTask {
  readonly rank: number;
  readonly attempt: number;
  readonly node: string;
  readonly node_name: string | null;
  readonly devices: readonly number[];
  readonly gpu_milli: number;
  /** Whether its GPUs do not exist. */
  readonly simulated: boolean;
  readonly phase: string;
  readonly wanted: string;
  readonly exit: {
    readonly reason: string | null;
    readonly exit_code: number | null;
    readonly signal: string | null;
    readonly message: string;
    readonly ended_at: string | null;
  } | null;
}

/** Something that holds a job back, in numbers and in words. */
export interface JobBlocker {
  readonly reason: string;
  readonly resource: string;
  readonly requested: number;
  readonly free: number;
  readonly limit: number;
  /** Where nodes do not come into question at all: how many of `limit` nodes for this reason. */
  readonly rejected?: number;
  /** Where no node offers what the job runs by: its name, and what the nodes do offer. */
  readonly wanted?: string;
  readonly offered?: readonly string[];
  /** Ids of the jobs that it waits for; the first 16. */
  readonly jobs?: readonly string[];
  readonly message: string;
}

/** Why a job waits, until when, and what would help. */
export interface JobExplanation {
  readonly blockers: readonly JobBlocker[];
  readonly nodes: {
    readonly total: number;
    readonly rejected: Readonly<Record<string, number>>;
    readonly rejected_by_capacity: number;
  };
  readonly tasks_that_fit: number;
  readonly start_estimate: {
    readonly earliest: string | null;
    readonly likely: string | null;
    readonly latest: string | null;
  };
  /** The smallest first; empty where the request is not what holds it back. */
  readonly changes: readonly {
    /** As in the spec; `all_amounts` scales every amount of a task alike. */
    readonly field: string;
    readonly from: string | number | boolean;
    /** In the units of the spec, of the whole job; null: leave the field out. */
    readonly to: string | number | boolean | null;
    /** How much of the field is given up, in 0..1. */
    readonly cost: number;
    /** What becomes of the job then; `would_wait` only where it can never run as it is. */
    readonly outcome: "would_start" | "would_wait";
  }[];
}

/** The whole of a job. */
export interface Job extends JobSummary {
  /** The log index of its latest change; `"INDEX"` is its ETag. */
  readonly index: number;
  readonly failures: number;
  readonly losses: number;
  readonly preemptions: number;
  readonly live_tasks: number;
  readonly waiting_for: readonly string[];
  readonly leaving: { readonly why: string; readonly for_job: string | null } | null;
  readonly due_at: string | null;
  readonly not_before: string | null;
  readonly promised_start: string | null;
  readonly checkpoint: {
    readonly name: string;
    readonly attempt: number;
    readonly step: number | null;
    readonly at: string | null;
  } | null;
  readonly executor: string;
  /** Of a training job: what it computes with, and which parameter server holds each shard. */
  readonly training: {
    readonly backend: string | null;
    readonly device: string | null;
    readonly bytes_pushed: number | null;
    readonly shards: readonly {
      readonly shard: number;
      readonly parameter_server: string;
      readonly name: string | null;
      readonly address: string | null;
      /** `ready`, `lost`, or `forgotten`. */
      readonly state: string;
    }[];
  } | null;
  /** As which model it is, or will be, served. */
  readonly model: {
    readonly id: string;
    /** `pending`, `registered` or `failed`. */
    readonly state: string;
    readonly message: string | null;
  } | null;
  readonly task_list: readonly JobTask[];
  readonly spec: Readonly<Record<string, unknown>>;
  /** Null where it does not wait. */
  readonly explanation: JobExplanation | null;
}

/** What would become of a job if it were submitted now. */
export interface DryRun {
  readonly object: "dry_run";
  readonly verdict: "would_start" | "would_wait" | "unsatisfiable";
  readonly tasks: number;
  readonly placement: readonly {
    readonly rank: number;
    readonly node: string;
    readonly node_name: string | null;
    readonly devices: readonly number[];
  }[];
  readonly never_fits: readonly JobBlocker[];
  readonly explanation: JobExplanation;
}

/** A node: what it is, and what jobs hold of it. */
export interface Worker {
  readonly id: string;
  readonly object: "worker";
  readonly kind: string;
  readonly name: string;
  readonly address: string;
  readonly version: string | null;
  /** How a worker isolates its tasks; null where it is not attached or does not say. */
  readonly task_isolation: string | null;
  /** `suspect`: the master that answers does not hear of it, and the cluster does not hold it for lost yet. */
  readonly status: string;
  readonly attached: boolean;
  /** For how long the master that answers has not heard of it. */
  readonly silent_seconds: number;
  /** Why a node with the status `refusing` does not work for this cluster or its leader; null on others. */
  readonly refuses_leader: string | null;
  readonly cpu_percent: number | null;
  readonly cpu_count: number | null;
  readonly memory_bytes: number | null;
  readonly memory_used_bytes: number | null;
  readonly gpus: readonly {
    readonly index: number;
    readonly name: string;
    readonly memory_bytes: number;
    readonly simulated: boolean;
    readonly fault: string | null;
  }[];
  readonly replicas: readonly { readonly deployment: string; readonly phase: string }[];
  /** Null on a node that runs no jobs. */
  readonly jobs: {
    readonly state: string;
    readonly drain_by: string | null;
    readonly rack: string;
    readonly executors: readonly string[];
    readonly algorithms: readonly string[];
    readonly gpu_type: string;
    readonly gpus: number;
    readonly gpus_held: number;
    readonly simulated: boolean;
    readonly tasks: readonly { readonly job_id: string; readonly rank: number }[];
  } | null;
  /** Of a parameter server that the cluster gives shards to; null on others. */
  readonly shards: { readonly held: number; readonly places: number } | null;
}

/** A queue, how its jobs are placed and how many it holds. */
export interface Queue {
  readonly id: string;
  readonly object: "queue";
  readonly name: string;
  readonly strategy: "binpack" | "spread" | "fragmentation";
  readonly length: number;
  readonly max_length: number | null;
}

/** A model, what backs it and how it is. */
export interface Model {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  readonly family: string;
  /** What the id promises, in tokens. */
  readonly context_window: number;
  /** What every ready replica serves, in tokens; null while none tells. */
  readonly served_context_tokens: number | null;
  /** Where the chat template of the ready replicas is from; null while none tells. */
  readonly chat_template: string | null;
  readonly backing: string;
  readonly stand_in: boolean;
  /** What a model that a job has trained was made of. */
  readonly lineage: ModelLineage | null;
  readonly status: "ready" | "loading" | "pulling" | "failed" | "unplaced";
  readonly replicas: readonly ModelReplica[];
  /** What holds back a replica that the scheduler is to place, and why one failed for good. */
  readonly waiting_for: readonly string[];
  /** Null where the model is not loaded from a file. */
  readonly weights: { readonly file: string } | null;
}

/** A copy of a model on a worker. */
export interface ModelReplica {
  readonly node: string;
  /** `pulling`, `loading`, `ready`, `failed` or `unloading`. */
  readonly phase: string;
  readonly pulled_bytes: number;
  readonly total_bytes: number;
  readonly message: string;
}

/** A model that was removed. */
export interface DeletedModel {
  readonly id: string;
  readonly object: string;
  readonly deleted: boolean;
}

/** How far a pull of weights is. */
export interface ModelPullProgress {
  readonly pulled_bytes: number;
  readonly total_bytes: number;
  readonly source: string;
  readonly done: boolean;
}

/** Whether a master is well. */
export interface MasterHealth {
  readonly status: string;
  readonly version: string;
  /** Seconds. */
  readonly uptime: number;
  /** Why it is not well. */
  readonly detail?: string | undefined;
}

/** A token with which one node may join the cluster, once. */
export interface IssuedJoinToken {
  readonly object: "cluster.join_token";
  readonly role: string;
  readonly name: string;
  /** Whether the cluster's nodes talk over TLS. */
  readonly tls: boolean;
  readonly token: string;
  readonly expires_at: string;
  /** Id of the key that encrypts the state; null where it is not encrypted. */
  readonly secrets_key: string | null;
}

/** The job that has trained a model, and what it was made of. */
export interface ModelLineage {
  readonly job_id: string;
  readonly job_name: string;
  readonly project: string;
  readonly attempt: number;
  readonly algorithm: string;
  /** Of the model's file, hexadecimal. */
  readonly sha256: string;
  readonly data_sha256: string | null;
  readonly code_version: string | null;
  readonly step: number | null;
  readonly loss: number | null;
}

/** A file that a task of a job has left. */
export interface JobArtifact {
  readonly object: "artifact";
  /** Relative, with `/` between folders. */
  readonly name: string;
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
  readonly rank: number;
  readonly attempt: number;
  /** The worker that has it. */
  readonly node: string;
}

/** A project: what it may use, and what it has used. */
export interface Project {
  readonly id: string;
  readonly object: "project";
  readonly name: string;
  readonly weight: number;
  /** Null is unlimited. */
  readonly quota: {
    readonly gpu_count: number | null;
    readonly gpu_hours: number | null;
    readonly queue_length: number | null;
  };
  /** What its jobs hold now, and their GPU-hours since `window_start`. */
  readonly usage: {
    readonly gpus: number;
    readonly cpu_cores: number;
    readonly memory_mib: number;
    readonly gpu_hours: number;
    readonly window_start: string;
  };
}

/** An API key without its text. */
export interface ApiKey {
  readonly id: string;
  readonly object: "api_key";
  readonly name: string;
  readonly scopes: readonly string[];
  /** Empty for all. */
  readonly models: readonly string[];
  /** Those of `models` that no model is registered under now; the key may call them once one is. */
  readonly unknown_models: readonly string[];
  readonly limits: {
    readonly requests_per_minute: number | null;
    readonly tokens_per_minute: number | null;
    readonly concurrency: number | null;
  };
  readonly status: "active" | "expired" | "revoked";
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  /** The id of the key in whose place it was made, and of the last that was made in its place. */
  readonly rotated_from: string | null;
  readonly rotated_to: string | null;
  readonly last_used_at: string | null;
}

/** A key as it was made: the only time that its text is told. */
export interface CreatedApiKey extends ApiKey {
  readonly key: string;
}

/** A setting that all masters share. */
export interface Setting {
  readonly object: "cluster_setting";
  readonly name: string;
  readonly value: number;
  /** What `ifMatch` takes, in quotes; 0 while nobody has set it. */
  readonly version: number;
  readonly default: number;
  readonly type: "integer" | "number";
  readonly minimum: number;
  readonly maximum: number;
  readonly unit: string;
  readonly description: string;
  readonly updated_at: string | null;
}

/** A route of the cluster, and the permission that it needs. */
export interface Route {
  readonly method: string;
  readonly path: string;
  readonly permission: string;
  readonly summary: string;
}
