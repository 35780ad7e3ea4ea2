import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { AppError } from "@heddle/base/errors";
import { isLoopback } from "@heddle/base/network/network-address";
import type { CatalogProfile } from "@heddle/contracts/catalog";
import { leavesLoopback } from "@heddle/contracts/configuration/master-faults";
import {
  MASTER_SETTING_NAMES,
  type MasterSettings,
} from "@heddle/contracts/configuration/master-settings";
import {
  flagOf,
  isToggle,
  readSettings,
  type SettingsFile,
} from "@heddle/contracts/configuration/read-settings";
import type { LogLevel } from "@heddle/observability/logger";
import {
  type OtlpMetricsSettings,
  type OtlpSettings,
  readOtlpMetrics,
  readOtlpSettings,
} from "@heddle/observability/tracing/otlp-settings";

/** PEM files of a certificate and its key. */
export interface CertificateFiles {
  readonly certificateFile: string;
  readonly keyFile: string;
}

/** This process's configuration. Flags take precedence over variables, those over the file, that over defaults. */
export interface MasterConfig {
  readonly dataDirectory: string;
  readonly httpHost: string;
  readonly httpPort: number;
  /** The files of HTTPS; undefined: HTTP in the clear. */
  readonly httpTls: CertificateFiles | undefined;
  /** Addresses and networks whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  readonly grpcHost: string;
  readonly grpcPort: number;
  /** The port for the other masters' connections on the gRPC host; 0 chooses a free one. */
  readonly raftPort: number;
  /** The file with the nodes' token; created in the data directory if absent. */
  readonly clusterTokenFile: string;
  /** The file with the keys that encrypt secrets at rest. */
  readonly secretsKeyFile: string | undefined;
  /** The file with the first admin key of an empty cluster; created if absent. */
  readonly bootstrapKeyFile: string | undefined;
  /** With a key by which workers and parameter servers join. */
  readonly enrollKeyFile: string | undefined;
  readonly profile: CatalogProfile | undefined;
  /** A GGUF file (absolute path) that serves the shipped models instead of a profile. */
  readonly modelFile: string | undefined;
  /** The model that `moderation-judge` means; a ready one if absent. */
  readonly moderationJudge: string | undefined;
  /** The identity provider and the roles that a start sets; without it there are keys only. */
  readonly authFile: string | undefined;
  /** Redis that counts the limits over all masters; each counts its share if absent. */
  readonly limitsRedis: string | undefined;
  readonly limitsRedisPasswordFile: string | undefined;
  /** Plugins of this master: files, folders, packages, and lists of them that end in `.json`. */
  readonly plugins: readonly string[];
  /** Hosts that webhooks may call though they are not public, or without TLS. */
  readonly webhookHosts: readonly string[];
  /** Where events are copied: URLs. */
  readonly eventSinks: readonly string[];
  /** Keys of witnesses, whose signatures of checkpoints are kept. */
  readonly eventWitnesses: readonly string[];
  /** `sync`: a call reaches its model only after its event is in the log. */
  readonly auditMode: "async" | "sync";
  /** This master's name in the cluster. */
  readonly masterId: string;
  /** host:port of the gRPC servers of all masters, by name; empty for a single master. */
  readonly peers: ReadonlyMap<string, string>;
  /** Bounds of this master's task logs. */
  readonly taskLogs: { readonly maxBytes: number; readonly maxAgeMs: number };
  readonly walSegmentBytes: number;
  readonly snapshotEntries: number;
  /** Whether other machines reach the HTTP API without TLS. */
  readonly isHttpExposed: boolean;
  /** Whether nodes of other machines are reached without TLS. */
  readonly isExposed: boolean;
  /** Whether nodes authenticate by certificates over TLS. */
  readonly tls: boolean;
  /** The file with the key and certificate that sign the nodes' certificates. */
  readonly authorityFile: string;
  /** The file with a token with which this master joins a cluster with TLS. */
  readonly joinTokenFile: string | undefined;
  readonly certificateLifetimeMs: number;
  readonly logLevel: LogLevel;
  /** Where traces go; undefined: off. */
  readonly otlp: OtlpSettings | undefined;
  readonly otlpMetrics?: OtlpMetricsSettings | undefined;
  readonly maxCalls: number;
  /** Queue length per deployment, and the maximum wait. */
  readonly maxQueued: number;
  readonly maxWaitMs: number;
  readonly deadlineMs: number;
  readonly maxBodyBytes: number;
  /** Bytes of bodies being read at once, and connections at once. */
  readonly maxReadingBytes: number;
  /** Origins whose scripts may read answers. */
  readonly corsOrigins: readonly string[];
  readonly maxConnections: number;
  /** The largest heap for a restart when the state needs more; 0: a share of the memory. */
  readonly maxHeapMib: number;
  /** How long running calls may continue after SIGTERM. */
  readonly drainMs: number;
  readonly jobTimes: JobTimes;
  readonly fixedTimes: FixedTimes;
}

/** Heartbeat interval of a silent stream, so that proxies keep it open. */
export const HEARTBEAT_MS = 15_000;

/** How long a client may read nothing of its pending data before its stream is cut. */
export const READER_STALL_MS = 60_000;

/** Times that no flag sets. */
export interface FixedTimes {
  /** The interval of the nodes' reports. */
  readonly nodeHeartbeatMs: number;
  /** The longest wait of a call for a replica that is loading. */
  readonly maxLoadingWaitMs: number;
  /** Heartbeat interval of a silent stream, so that proxies keep it open. */
  readonly streamHeartbeatMs: number;
  /** Interval at which the stream of a waiting call shows its place in the queue. */
  readonly streamProgressMs: number;
  /** How long a client may read nothing of its stream. */
  readonly streamStallMs: number;
  /** Between two checks that the caller of a stream may still read it. */
  readonly rightsCheckMs: number;
  /** How long a client may take to send its headers, and its whole request. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

const FIXED_TIMES: FixedTimes = {
  nodeHeartbeatMs: 1_000,
  maxLoadingWaitMs: 60_000,
  streamHeartbeatMs: HEARTBEAT_MS,
  streamProgressMs: 3_000,
  streamStallMs: READER_STALL_MS,
  rightsCheckMs: 20_000,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
};

/** Timeouts of the lifecycle of jobs; equal on all masters. */
export interface JobTimes {
  /** How long a worker keeps its tasks without a renewal. */
  readonly leaseMs: number;
  /** Silence after which a node is lost. */
  readonly nodeLostMs: number;
  /** How long workers may take to acknowledge the leases of a start. */
  readonly acknowledgeMs: number;
}

/** The file that `--config` or HEDDLE_CONFIG names. */
export async function readConfigFile(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<SettingsFile | undefined> {
  const path = parseFlags(args)["config"] ?? env["HEDDLE_CONFIG"];
  if (typeof path !== "string" || path === "") return undefined;
  // Only a start with a file needs the reader of YAML.
  const { readSettingsFile } = await import("@heddle/contracts/configuration/settings-file");
  return readSettingsFile("--config", path);
}

/** All settings by their names, as read from flags, variables, the file and the defaults. */
export function readAllSettings(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  file?: SettingsFile,
): MasterSettings {
  return readSettings({ flags: parseFlags(args), env, file });
}

/** Reads the configuration, or throws one `invalid_value` that lists every fault. */
export function readConfig(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  file?: SettingsFile,
): MasterConfig {
  const settings = readAllSettings(args, env, file);
  const leaves = leavesLoopback(settings);
  const tls = settings.tls || (leaves && !settings.insecure_nodes);
  const dataDirectory = resolve(settings.data.replace(/^~(?=\/|$)/, homedir()));
  return {
    dataDirectory,
    httpHost: settings.http_host,
    httpPort: settings.http_port,
    httpTls: httpTlsOf(settings),
    trustedProxies: settings.trusted_proxies,
    grpcHost: settings.grpc_host,
    grpcPort: settings.grpc_port,
    raftPort: settings.raft_port,
    ...filesOf(settings, dataDirectory),
    certificateLifetimeMs: settings.certificate_seconds * 1_000,
    profile: settings.profile || undefined,
    moderationJudge: settings.moderation_judge || undefined,
    limitsRedis: settings.limits_redis || undefined,
    plugins: settings.plugins,
    webhookHosts: settings.webhook_hosts,
    eventSinks: settings.event_sinks,
    eventWitnesses: settings.event_witnesses,
    auditMode: settings.audit_mode,
    masterId: settings.name,
    peers: settings.peers,
    taskLogs: {
      maxBytes: settings.task_logs_mib * 2 ** 20,
      maxAgeMs: settings.task_logs_hours * 3_600_000,
    },
    walSegmentBytes: settings.wal_segment_mib * 2 ** 20,
    snapshotEntries: settings.snapshot_entries,
    isHttpExposed: settings.http_cert_file === "" && !isLoopback(settings.http_host),
    isExposed: leaves && !tls,
    tls,
    logLevel: settings.log_level,
    ...otlpOf(settings, env),
    ...callBoundsOf(settings),
    corsOrigins: settings.cors_origins,
    maxHeapMib: settings.max_heap_mib,
    drainMs: settings.drain_ms,
    jobTimes: {
      leaseMs: settings.lease_ms,
      nodeLostMs: settings.node_lost_ms,
      acknowledgeMs: settings.acknowledge_ms,
    },
    fixedTimes: FIXED_TIMES,
  };
}

function filesOf(settings: MasterSettings, dataDirectory: string) {
  return {
    clusterTokenFile: settings.cluster_token_file || join(dataDirectory, "cluster-token"),
    authorityFile: settings.ca_file || join(dataDirectory, "cluster-ca.pem"),
    joinTokenFile: settings.join_token_file || undefined,
    secretsKeyFile: settings.secrets_key_file || undefined,
    bootstrapKeyFile: settings.bootstrap_key_file || undefined,
    enrollKeyFile: settings.enroll_key_file || undefined,
    modelFile: settings.model_file ? resolve(settings.model_file) : undefined,
    authFile: settings.auth_file || undefined,
    limitsRedisPasswordFile: settings.limits_redis_password_file || undefined,
  };
}

function httpTlsOf({ http_cert_file: certificateFile, http_key_file: keyFile }: MasterSettings) {
  return certificateFile ? { certificateFile, keyFile } : undefined;
}

function otlpOf({ otlp_endpoint: endpoint, name }: MasterSettings, env: NodeJS.ProcessEnv) {
  const asked = { endpoint, service: "heddle-master", instance: name };
  return { otlp: readOtlpSettings(asked, env), otlpMetrics: readOtlpMetrics(asked, env) };
}

function callBoundsOf(settings: MasterSettings) {
  return {
    maxCalls: settings.max_calls,
    maxQueued: settings.max_queued,
    maxWaitMs: settings.max_wait_ms,
    deadlineMs: settings.deadline_ms,
    maxBodyBytes: settings.max_body_bytes,
    maxReadingBytes: settings.max_reading_bytes,
    maxConnections: settings.max_connections,
  };
}

function parseFlags(args: readonly string[]): Record<string, string | boolean | undefined> {
  const names = MASTER_SETTING_NAMES.map((name) => [
    flagOf(name),
    { type: isToggle(name) ? ("boolean" as const) : ("string" as const) },
  ]);
  const options = { config: { type: "string" as const }, ...Object.fromEntries(names) };
  try {
    const { values } = parseArgs({ args: [...args], options, strict: true });
    return values as ReturnType<typeof parseFlags>;
  } catch (error) {
    throw new AppError("invalid_value", `${(error as Error).message}. See --help.`);
  }
}

/** Files and directories that hold secrets of this master. */
export function secretPathsOf(config: MasterConfig): string[] {
  const { dataDirectory, clusterTokenFile, authorityFile } = config;
  const { bootstrapKeyFile, enrollKeyFile, secretsKeyFile } = config;
  const { joinTokenFile, limitsRedisPasswordFile, httpTls } = config;
  const given = [
    bootstrapKeyFile,
    enrollKeyFile,
    secretsKeyFile,
    joinTokenFile,
    limitsRedisPasswordFile,
    httpTls?.keyFile,
  ];
  return [
    dataDirectory,
    clusterTokenFile,
    authorityFile,
    ...given.filter((file) => file !== undefined),
  ];
}
