import type { DeploymentSpec, WeightsSpec } from "@heddle/contracts/engine";
import type { Limits, Prices } from "@heddle/contracts/limits";
import type { ScalingTargets } from "@heddle/scheduler/serving/replica-count";
import type {
  AccessPolicyRecord,
  EndedSession,
  RoleRecord,
  ServiceRecord,
  SessionTokens,
  SubjectRecord,
} from "./access/records.ts";
import type { EventName } from "./audit/records.ts";
import type { WebhookProgress, WebhookRecord } from "./audit/webhook-records.ts";
import type { DocumentRecord } from "./documents/records.ts";
import type { JobsState, ReplicaResources } from "./jobs/records/records.ts";
import type { SecretRecord } from "./secrets/records.ts";
import type { MasterUsage } from "./usage-sum.ts";

/**
 * The cluster's replicated state. Only `apply` changes it (apply.ts,
 * jobs/commands/jobs-state-machine.ts).
 * - Deterministic: the same commands in the same order give the same state on every master.
 * - Records are immutable; a change replaces the record.
 */
export interface ControlState extends JobsState {
  /** Keyed by key id, the eight characters in the key's text. */
  readonly keys: Map<string, ApiKeyRecord>;
  /** Keyed by model id. */
  readonly models: Map<string, ModelRecord>;
  /** Keyed by deployment key. Invariant: every model's deployment is here. */
  readonly deployments: Map<string, DeploymentRecord>;
  /** Keyed by name; a setting without a record has its default and the version 0. */
  readonly settings: Map<string, SettingRecord>;
  /** Limits of projects and models, by `subjectId`. */
  readonly limits: Map<string, LimitsRecord>;
  /** Sums of usage of all masters, by day, master, key, project and model. */
  readonly usage: Map<string, MasterUsage>;
  /** Unused join tokens, by the SHA-256 of their secret. */
  readonly joins: Map<string, JoinRecord>;
  /** Models that an administrator removed, by id: a restart does not register them again. */
  readonly removedModels: Map<string, RemovedModel>;
  /** Keyed by `documentKey`; their contents are on the masters' disks. */
  readonly documents: Map<string, DocumentRecord>;
  /** Roles of the cluster's own, by name. */
  readonly roles: Map<string, RoleRecord>;
  /** Roles of users, groups, keys and service accounts, by `subjectKey`. */
  readonly bindings: Map<string, SubjectRecord>;
  /** The access policy; its defaults hold while it is absent. */
  readonly access: Map<"policy", AccessPolicyRecord>;
  /** Service accounts, by name. */
  readonly services: Map<string, ServiceRecord>;
  /** Sessions of browsers that were ended early, by a hash of what they have in common. */
  readonly endedSessions: Map<string, EndedSession>;
  /** Tokens of browsers' sessions, under keys that only their cookies have. */
  readonly sessionTokens: Map<string, SessionTokens>;
  /** Secrets of projects, by `secretKey`. */
  readonly secrets: Map<string, SecretRecord>;
  /** Where events are sent, by id. */
  readonly webhooks: Map<string, WebhookRecord>;
  /** How far each of them is. */
  readonly webhookProgress: Map<string, WebhookProgress>;
  /** Clients' events that were logged, by a hash of their names. */
  readonly eventNames: Map<string, EventName>;
  /** The last revision of each stream of clients' events, by project and name. */
  readonly eventStreams: Map<string, number>;
  /** The id of the key of each subject of events: callers as `user:ID`, and actors. */
  readonly subjects: Map<string, string>;
  /** The keys of subjects in base64, by id; those of removed ones are gone. */
  readonly subjectKeys: Map<string, string>;
  /**
   * The cluster's own values; see cluster-version.ts.
   * - `version`: the cluster version, a number; absent in a state that was never raised.
   * - `secretsKey`: the id of the key that encrypts the log; absent while the log is plain text.
   * - `events`: how many events followed from the log of this cluster; absent before the first.
   * - `firstEvent`: the first event that is kept; absent while all are.
   * - `sink:ID`: the first event that a sink does not have.
   * - `checkpoint`: the newest signed checkpoint of the event log.
   * - `cosigned`: the newest one that a witness signed.
   * - `batch:MASTER`: the last command of a master's process that recorded calls.
   * - `revoked:ROLE/NAME`: when the certificates of a node were revoked.
   */
  readonly cluster: Map<ClusterValue, number | string>;
}

type ClusterValue =
  | "version"
  | "secretsKey"
  | "events"
  | "firstEvent"
  | "checkpoint"
  | "cosigned"
  | `sink:${string}`
  | `batch:${string}`
  | `revoked:${string}`;

export interface RemovedModel {
  readonly atMs: number;
}

/** A single-use token for a node's first certificate, or a master's membership. */
export interface JoinRecord {
  readonly role: "master" | "worker" | "parameter-server";
  /** The name it is for; absent in records of earlier versions, which are no longer valid. */
  readonly name?: string | undefined;
  /** The master has its certificate: only its membership is open. */
  readonly enrolled?: boolean | undefined;
  readonly expiresAtMs: number;
}

export interface ApiKeyRecord {
  readonly id: string;
  readonly name: string;
  /** HMAC-SHA-256 of the key's text under the cluster's pepper, hexadecimal. The text is not kept. */
  readonly hash: string;
  /** Permissions such as `models:deploy`; `*` grants all. None if it has a role. */
  readonly scopes: readonly string[];
  /** The role whose permissions it has, in its project if it names one. */
  readonly role?: string | undefined;
  /** The user or service that answers for it. */
  readonly owner?: string | undefined;
  /** The service account that it belongs to: its roles count too, and it ends while that is disabled. */
  readonly service?: string | undefined;
  /** Model ids this key may call; empty means every model. */
  readonly models: readonly string[];
  readonly limits: Limits;
  /** The project that it is bound to and whose limits its calls count for; `default` if absent. */
  readonly project?: string | undefined;
  /** Its calls are deterministic where they do not say otherwise. Masters that do not know it ignore it. */
  readonly deterministic?: boolean | undefined;
  readonly createdAtMs: number;
  /** The key that this one replaces. */
  readonly rotatedFrom?: string | undefined;
  readonly expiresAtMs?: number | undefined;
  readonly revokedAtMs?: number | undefined;
}

/** The limits of a project or a model. */
export interface LimitsRecord {
  readonly limits: Limits;
  /** The prices of a model. */
  readonly prices?: Prices | undefined;
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
  /** What serves this id, in words: shown wherever the model is listed. */
  readonly backing: string;
  /** True where a smaller or random model substitutes for the one that the id names. */
  readonly standIn: boolean;
  /** The only project that knows of it; every one if absent. */
  readonly project?: string | undefined;
  /** The origin of a model that a job of this cluster has trained. */
  readonly lineage?: ModelLineageRecord | undefined;
  /** A LoRA adapter with which the deployment answers under this id. */
  readonly adapter?: ModelAdapterRecord | undefined;
}

/** An adapter over the model that a deployment serves. */
export interface ModelAdapterRecord {
  /** The id of the model that it was registered over. */
  readonly base: string;
  readonly weights: WeightsSpec;
  readonly scale: number;
}

/** The inputs of a trained model. */
export interface ModelLineageRecord {
  readonly jobId: string;
  readonly jobName: string;
  readonly project: string;
  readonly attempt: number;
  readonly algorithm: string;
  /** SHA-256 of the model's file, hexadecimal. */
  readonly sha256: string;
  /** SHA-256 of the training data; absent if the trainer did not report it. */
  readonly dataSha256?: string | undefined;
  readonly codeVersion?: string | undefined;
  readonly step?: number | undefined;
  readonly loss?: number | undefined;
}

export interface DeploymentRecord {
  readonly spec: DeploymentSpec;
  /** The number of workers that run it, or one on every worker. */
  readonly replicas: number | "every-worker";
  /** What each replica needs of its node's GPUs, if the scheduler places it. */
  readonly resources?: ReplicaResources | undefined;
  /** How `replicas` follows the load; absent for a fixed number. */
  readonly scaling?: ScalingTargets | undefined;
  /** The latest change of `replicas` by the load. */
  readonly scaledAtMs?: number | undefined;
  readonly scaleReason?: string | undefined;
}

/** A cluster-wide setting. */
export interface SettingRecord {
  readonly value: number;
  /** Incremented with each change, for compare-and-set. */
  readonly version: number;
  readonly updatedAtMs: number;
}
