import type { DeploymentSpec } from "@heddle/contracts/engine";
import type { JobsState, ReplicaResources } from "./jobs/records/records.ts";

/**
 * The cluster's replicated state. It changes only in `apply` (apply.ts, jobs/job-board.ts), which is deterministic:
 * the same commands in the same order give the same state on every master. Records are immutable;
 * a change replaces the record.
 */
export interface ControlState extends JobsState {
  /** By key id, the eight characters in the key's text. */
  readonly keys: Map<string, ApiKeyRecord>;
  /** By model id. */
  readonly models: Map<string, ModelRecord>;
  /** By deployment key. Invariant: every model's deployment is here. */
  readonly deployments: Map<string, DeploymentRecord>;
  /** By name; a setting that is not here has its default and the version 0. */
  readonly settings: Map<string, SettingRecord>;
  /** Join tokens that may still be used, by the SHA-256 of their secret. */
  readonly joins: Map<string, JoinRecord>;
  /** By id, models that an administrator took out: no start registers them anew by itself. */
  readonly removedModels: Map<string, RemovedModel>;
  /**
   * `version`: the cluster version, a number, absent in a state that was never raised. `secretsKey`: the id of
   * the key that encrypts the log, absent while it is in clear. See cluster-version.ts.
   */
  readonly cluster: Map<"version" | "secretsKey", number | string>;
}

export interface RemovedModel {
  readonly atMs: number;
}

/** A single-use token with which a node gets its first certificate, or a master its place. */
export interface JoinRecord {
  readonly role: "master" | "worker" | "parameter-server";
  /** Whom it is for; absent in records of earlier versions, which are for nobody now. */
  readonly name?: string | undefined;
  /** Of a master that has its certificate: what is left is its place in the group. */
  readonly enrolled?: boolean | undefined;
  readonly expiresAtMs: number;
}

export interface ApiKeyRecord {
  readonly id: string;
  readonly name: string;
  /** HMAC-SHA-256 of the key's text under the cluster's pepper, hexadecimal. The text is not kept. */
  readonly hash: string;
  /** Permissions such as `models:deploy`; `*` grants all. */
  readonly scopes: readonly string[];
  /** Model ids this key may call; empty means every model. */
  readonly models: readonly string[];
  readonly limits: KeyLimits;
  readonly createdAtMs: number;
  /** The key in whose place this one was made. */
  readonly rotatedFrom?: string | undefined;
  readonly expiresAtMs?: number | undefined;
  readonly revokedAtMs?: number | undefined;
}

/** Absent means unlimited. */
export interface KeyLimits {
  readonly requestsPerMinute?: number | undefined;
  readonly tokensPerMinute?: number | undefined;
  readonly concurrency?: number | undefined;
}

export interface ModelRecord {
  readonly id: string;
  readonly family: string;
  readonly contextWindow: number;
  readonly availability: string;
  readonly intendedUse: string;
  readonly ownedBy: string;
  readonly capabilities: readonly string[];
  readonly createdAtMs: number;
  /** The key of the deployment that answers. */
  readonly deployment: string;
  /** What really answers under this id, in words: shown wherever the model is listed. */
  readonly backing: string;
  /** True where a smaller or random model stands in for the one that the id promises. */
  readonly standIn: boolean;
  /** Where a model comes from that a job of this cluster has trained. */
  readonly lineage?: ModelLineageRecord | undefined;
}

/** What a trained model was made of. */
export interface ModelLineageRecord {
  readonly jobId: string;
  readonly jobName: string;
  readonly project: string;
  readonly attempt: number;
  readonly algorithm: string;
  /** SHA-256 of the model's file, hexadecimal. */
  readonly sha256: string;
  /** SHA-256 of the training data; absent where the trainer did not tell. */
  readonly dataSha256?: string | undefined;
  readonly codeVersion?: string | undefined;
  readonly step?: number | undefined;
  readonly loss?: number | undefined;
}

export interface DeploymentRecord {
  readonly spec: DeploymentSpec;
  /** How many workers run it, or one on every worker. */
  readonly replicas: number | "every-worker";
  /** What each replica needs of its node's GPUs, where the scheduler is to place it. */
  readonly resources?: ReplicaResources | undefined;
}

/** A setting of the whole cluster, as it was last set. */
export interface SettingRecord {
  readonly value: number;
  /** Rises by one with each change: what a compare-and-set compares. */
  readonly version: number;
  readonly updatedAtMs: number;
}
