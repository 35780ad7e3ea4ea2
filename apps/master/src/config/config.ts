import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { AppError } from "@heddle/base/errors";
import { isHostPort, isLoopback, MAX_PORT, splitHostPort } from "@heddle/base/network-address";
import { CATALOG_PROFILES, type CatalogProfile } from "@heddle/contracts/catalog";
import { LOG_LEVELS, type LogLevel } from "@heddle/observability/logger";

/** This process's configuration. Flags take precedence over environment variables and defaults. */
export interface MasterConfig {
  readonly dataDirectory: string;
  readonly httpHost: string;
  readonly httpPort: number;
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
  /** `sync`: a model is called only when that is in the event log. */
  readonly auditMode: "async" | "sync";
  /** This master's name in the cluster. */
  readonly masterId: string;
  /** host:port of the gRPC servers of all masters, by name; empty for a single master. */
  readonly peers: ReadonlyMap<string, string>;
  /** Bounds of this master's task logs. */
  readonly taskLogs: { readonly maxBytes: number; readonly maxAgeMs: number };
  readonly walSegmentBytes: number;
  readonly snapshotEntries: number;
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

/** Each flag, its environment variable, its default and its help. */
const SETTINGS = {
  data: ["HEDDLE_DATA", join(homedir(), ".heddle", "master"), "data directory"],
  "http-host": ["HEDDLE_HTTP_HOST", "127.0.0.1", "address of the HTTP APIs"],
  "http-port": ["HEDDLE_HTTP_PORT", "8080", "port of the HTTP APIs; 0 selects a free one"],
  "grpc-host": ["HEDDLE_GRPC_HOST", "127.0.0.1", "gRPC address for nodes"],
  "grpc-port": ["HEDDLE_GRPC_PORT", "8081", "gRPC port for nodes; 0 selects a free one"],
  "raft-port": ["HEDDLE_RAFT_PORT", "0", "port for the other masters; 0 selects a free one"],
  "cluster-token-file": ["HEDDLE_CLUSTER_TOKEN_FILE", "", "cluster token file"],
  "ca-file": [
    "HEDDLE_CA_FILE",
    "",
    "file with the certificate authority of the nodes: key and certificate",
  ],
  "join-token-file": ["HEDDLE_JOIN_TOKEN_FILE", "", "join token file of a new master"],
  "certificate-seconds": [
    "HEDDLE_CERTIFICATE_SECONDS",
    "86400",
    "lifetime of node certificates, in seconds",
  ],
  "secrets-key-file": [
    "HEDDLE_SECRETS_KEY_FILE",
    "",
    "file with the keys that encrypt stored data (or HEDDLE_SECRETS_KEY, the key itself)",
  ],
  "bootstrap-key-file": ["HEDDLE_BOOTSTRAP_KEY_FILE", "", "file with the first admin key"],
  "enroll-key-file": [
    "HEDDLE_ENROLL_KEY_FILE",
    "",
    "file with a key by which workers and parameter servers join",
  ],
  profile: ["HEDDLE_PROFILE", "", "weights of the built-in models: demo, small, gpu or tiny"],
  "model-file": [
    "HEDDLE_MODEL_FILE",
    "",
    "GGUF file for the built-in models, instead of a profile",
  ],
  "auth-file": ["HEDDLE_AUTH_FILE", "", "JSON file with the identity provider and the roles"],
  "limits-redis": [
    "HEDDLE_LIMITS_REDIS",
    "",
    "redis://HOST:PORT/DB or rediss:// that counts limits over all masters",
  ],
  "limits-redis-password-file": ["HEDDLE_LIMITS_REDIS_PASSWORD_FILE", "", "its password"],
  "moderation-judge": ["HEDDLE_MODERATION_JUDGE", "", "the model that moderation-judge asks"],
  plugins: ["HEDDLE_PLUGINS", "", "plugins: files, folders, packages, lists of them (.json)"],
  "webhook-hosts": [
    "HEDDLE_WEBHOOK_HOSTS",
    "",
    "hosts of webhooks that are not public, or lack TLS",
  ],
  "audit-mode": [
    "HEDDLE_AUDIT_MODE",
    "async",
    "async, or sync: calls of models wait until they are in the event log",
  ],
  name: ["HEDDLE_NAME", "master-1", "this master's name in the cluster"],
  peers: ["HEDDLE_PEERS", "", "all masters including this one: name=host:port,... (gRPC)"],
  "wal-segment-mib": ["HEDDLE_WAL_SEGMENT_MIB", "64", "size of a write-ahead log segment, in MiB"],
  "snapshot-entries": ["HEDDLE_SNAPSHOT_ENTRIES", "10000", "log entries between snapshots"],
  "task-logs-mib": ["HEDDLE_TASK_LOGS_MIB", "10240", "maximum size of stored task logs, in MiB"],
  "task-logs-hours": ["HEDDLE_TASK_LOGS_HOURS", "168", "retention of task logs, in hours"],
  "log-level": ["HEDDLE_LOG_LEVEL", "info", "debug, info, warn, error or silent"],
  "max-calls": ["HEDDLE_MAX_CALLS", "4096", "maximum concurrent inference calls"],
  "max-queued": ["HEDDLE_MAX_QUEUED", "1024", "maximum queued calls per model"],
  "max-wait-ms": ["HEDDLE_MAX_WAIT_MS", "30000", "maximum queue time of a call, in ms"],
  "deadline-ms": ["HEDDLE_DEADLINE_MS", "600000", "maximum duration of a call, in ms"],
  "max-body-bytes": ["HEDDLE_MAX_BODY_BYTES", "4194304", "maximum request body, in bytes"],
  "max-reading-bytes": [
    "HEDDLE_MAX_READING_BYTES",
    "268435456",
    "maximum total of request bodies being read, and of calls in flight, in bytes",
  ],
  "max-connections": ["HEDDLE_MAX_CONNECTIONS", "16384", "maximum concurrent HTTP connections"],
  "cors-origins": ["HEDDLE_CORS_ORIGINS", "", "allowed CORS origins: https://a,... or *"],
  "max-heap-mib": [
    "HEDDLE_MAX_HEAP_MIB",
    "0",
    "maximum heap, in MiB; 0: three quarters of the memory",
  ],
  "drain-ms": ["HEDDLE_DRAIN_MS", "10000", "grace period for running calls after SIGTERM, in ms"],
  "lease-ms": [
    "HEDDLE_LEASE_MS",
    "150000",
    "lease of a worker's tasks after its last heartbeat, in ms",
  ],
  "node-lost-ms": [
    "HEDDLE_NODE_LOST_MS",
    "30000",
    "heartbeat timeout after which a worker is lost, in ms",
  ],
  "acknowledge-ms": [
    "HEDDLE_ACKNOWLEDGE_MS",
    "30000",
    "timeout for workers to acknowledge tasks, in ms",
  ],
} as const satisfies Record<string, readonly [env: string, fallback: string, help: string]>;

/** Each flag that takes no value, its environment variable and its help. */
const SWITCHES = {
  tls: ["HEDDLE_TLS", "use TLS between nodes; always on except on loopback"],
  "insecure-bind": ["HEDDLE_INSECURE_BIND", "serve HTTP beyond loopback without TLS"],
  "insecure-nodes": ["HEDDLE_INSECURE_NODES", "allow plain text between nodes beyond loopback"],
} as const satisfies Record<string, readonly [env: string, help: string]>;

type SettingName = keyof typeof SETTINGS;
type SwitchName = keyof typeof SWITCHES;
const NAMES = Object.keys(SETTINGS) as SettingName[];
const SWITCH_NAMES = Object.keys(SWITCHES) as SwitchName[];
const PROFILES: readonly string[] = CATALOG_PROFILES;

/** Reads the configuration, or throws one `invalid_value` that lists every fault. */
export function readConfig(args: readonly string[], env: NodeJS.ProcessEnv): MasterConfig {
  const { values, switches } = readValues(args, env);
  const faults: string[] = [];
  const whole = (name: SettingName, min: number, max: number): number => {
    const value = /^\d{1,12}$/.test(values[name]) ? Number(values[name]) : -1;
    if (value < min || value > max) {
      faults.push(`--${name} must be a whole number from ${min} to ${max}, got "${values[name]}"`);
    }
    return value;
  };
  const dataDirectory = resolve(values.data);
  const given = (name: SettingName) => values[name] || undefined;
  const read: Omit<MasterConfig, "tls" | "isExposed"> = {
    dataDirectory,
    httpHost: values["http-host"],
    httpPort: whole("http-port", 0, MAX_PORT),
    grpcHost: values["grpc-host"],
    grpcPort: whole("grpc-port", 0, MAX_PORT),
    raftPort: whole("raft-port", 0, MAX_PORT),
    clusterTokenFile: values["cluster-token-file"] || join(dataDirectory, "cluster-token"),
    ...keyFilesOf(given),
    profile: (values.profile || undefined) as CatalogProfile | undefined,
    modelFile: values["model-file"] ? resolve(values["model-file"]) : undefined,
    moderationJudge: given("moderation-judge"),
    authFile: given("auth-file"),
    ...addedBy(given),
    auditMode: values["audit-mode"] as MasterConfig["auditMode"],
    masterId: values.name,
    peers: readPeers(values.peers, values.name, faults),
    taskLogs: {
      maxBytes: whole("task-logs-mib", 1, 1_000_000_000) * 2 ** 20,
      maxAgeMs: whole("task-logs-hours", 1, 1_000_000) * 3_600_000,
    },
    walSegmentBytes: whole("wal-segment-mib", 1, 1024) * 2 ** 20,
    snapshotEntries: whole("snapshot-entries", 1, 10_000_000),
    authorityFile: values["ca-file"] || join(dataDirectory, "cluster-ca.pem"),
    joinTokenFile: given("join-token-file"),
    certificateLifetimeMs: whole("certificate-seconds", 3, 31_536_000) * 1_000,
    logLevel: values["log-level"] as LogLevel,
    maxCalls: whole("max-calls", 1, 1_000_000),
    maxQueued: whole("max-queued", 1, 1_000_000),
    maxWaitMs: whole("max-wait-ms", 1, 3_600_000),
    deadlineMs: whole("deadline-ms", 1, 86_400_000),
    maxBodyBytes: whole("max-body-bytes", 1024, 1_073_741_824),
    maxReadingBytes: whole("max-reading-bytes", 1024, 274_877_906_944),
    maxConnections: whole("max-connections", 1, 1_000_000),
    corsOrigins: readOrigins(values["cors-origins"], faults),
    maxHeapMib: whole("max-heap-mib", 0, 100_000_000),
    drainMs: whole("drain-ms", 0, 3_600_000),
    jobTimes: jobTimesOf(whole),
    fixedTimes: FIXED_TIMES,
  };
  const leaves = leavesLoopback(read);
  const tls = switches.tls || (leaves && !switches["insecure-nodes"]);
  const config = { ...read, tls, isExposed: leaves && !tls };
  faults.push(...choiceFaults(config));
  if (!switches["insecure-bind"]) faults.push(...bindFaults(config));
  if (faults.length > 0) throw new AppError("invalid_value", `${faults.join("; ")}.`);
  return config;
}

function keyFilesOf(given: (name: SettingName) => string | undefined) {
  return {
    secretsKeyFile: given("secrets-key-file"),
    bootstrapKeyFile: given("bootstrap-key-file"),
    enrollKeyFile: given("enroll-key-file"),
  };
}

/** What is added from elsewhere: plugins, and Redis for limits. */
function addedBy(given: (name: SettingName) => string | undefined) {
  return {
    plugins: (given("plugins") ?? "").split(",").filter(Boolean),
    webhookHosts: (given("webhook-hosts") ?? "").split(",").filter(Boolean),
    limitsRedis: given("limits-redis"),
    limitsRedisPasswordFile: given("limits-redis-password-file"),
  };
}

function jobTimesOf(whole: (name: SettingName, min: number, max: number) => number): JobTimes {
  return {
    leaseMs: whole("lease-ms", 100, 86_400_000),
    nodeLostMs: whole("node-lost-ms", 100, 86_400_000),
    acknowledgeMs: whole("acknowledge-ms", 100, 3_600_000),
  };
}

/** Files and directories that hold secrets of this master. */
export function secretPathsOf(config: MasterConfig): string[] {
  const { dataDirectory, clusterTokenFile, authorityFile } = config;
  const { bootstrapKeyFile, enrollKeyFile, secretsKeyFile } = config;
  const { joinTokenFile, limitsRedisPasswordFile } = config;
  const given = [
    bootstrapKeyFile,
    enrollKeyFile,
    secretsKeyFile,
    joinTokenFile,
    limitsRedisPasswordFile,
  ];
  return [
    dataDirectory,
    clusterTokenFile,
    authorityFile,
    ...given.filter((file) => file !== undefined),
  ];
}

function readOrigins(text: string, faults: string[]): string[] {
  const origins = text.split(",").filter(Boolean);
  for (const origin of origins) {
    if (origin === "*" || /^https?:\/\/[^/\s,]+$/.test(origin)) continue;
    faults.push(`--cors-origins takes https://host,... or *, got "${origin}"`);
  }
  return origins;
}

/** Parses `a=host:1,b=host:2`; faults are added to the list. */
function readPeers(text: string, own: string, faults: string[]): ReadonlyMap<string, string> {
  const peers = new Map<string, string>();
  for (const part of text.split(",").filter(Boolean)) {
    const [, name, address = ""] = /^([A-Za-z0-9][A-Za-z0-9._-]{0,62})=(.+)$/.exec(part) ?? [];
    if (name === undefined || !isHostPort(address)) {
      const form = `name=host:port,... with ports from 1 to ${MAX_PORT}`;
      faults.push(`--peers takes ${form}, got "${part}"`);
    } else if (peers.has(name)) faults.push(`--peers names ${name} twice`);
    else peers.set(name, address);
  }
  if (peers.size > 0 && !peers.has(own)) {
    faults.push(`--peers must name this master too: add ${own}=host:port, or give its --name`);
  }
  return peers;
}

/** The text that --help prints. */
export function usageText(): string {
  const lines = NAMES.map((name) => {
    const [variable, fallback, help] = SETTINGS[name];
    return `  --${name.padEnd(20)} ${help} [${variable}${fallback ? `, ${fallback}` : ""}]`;
  });
  const switches = Object.entries(SWITCHES).map(
    ([name, [variable, help]]) => `  --${name.padEnd(20)} ${help} [${variable}]`,
  );
  lines.push(...switches);
  return `Usage: heddle-master [flags]\n${lines.join("\n")}\n`;
}

function readValues(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): { values: Record<SettingName, string>; switches: Record<SwitchName, boolean> } {
  const flags = parseFlags(args);
  const entries = NAMES.map((name) => {
    const [variable, fallback] = SETTINGS[name];
    return [name, flags[name] ?? env[variable] ?? fallback];
  });
  return {
    values: Object.fromEntries(entries) as Record<SettingName, string>,
    switches: Object.fromEntries(
      SWITCH_NAMES.map((name) => [name, flags[name] === true || env[SWITCHES[name][0]] === "true"]),
    ) as Record<SwitchName, boolean>,
  };
}

function parseFlags(args: readonly string[]): Record<string, string | boolean | undefined> {
  const text = NAMES.map((name) => [name, { type: "string" as const }]);
  const switches = SWITCH_NAMES.map((name) => [name, { type: "boolean" as const }]);
  const options = Object.fromEntries([...text, ...switches]);
  try {
    return parseArgs({ args: [...args], options, strict: true }).values as ReturnType<
      typeof parseFlags
    >;
  } catch (error) {
    throw new AppError("invalid_value", `${(error as Error).message}. See --help.`);
  }
}

function choiceFaults(config: MasterConfig): string[] {
  const { logLevel, profile, modelFile, masterId } = config;
  const faults: string[] = [];
  if (config.maxReadingBytes < 2 * config.maxBodyBytes) {
    faults.push("--max-reading-bytes must be at least twice --max-body-bytes");
  }
  if (!(LOG_LEVELS as readonly string[]).includes(logLevel)) {
    faults.push(`--log-level must be one of ${LOG_LEVELS.join(", ")}, got "${logLevel}"`);
  }
  if (profile !== undefined && !PROFILES.includes(profile)) {
    faults.push(`--profile must be one of ${PROFILES.join(", ")}, got "${profile}"`);
  }
  if (modelFile !== undefined && profile !== undefined) {
    faults.push("--profile and --model-file exclude each other: give one of them");
  }
  if (modelFile !== undefined && !modelFile.endsWith(".gguf")) {
    faults.push(`--model-file must end in .gguf, got "${modelFile}"`);
  }
  if (config.auditMode !== "async" && config.auditMode !== "sync") {
    faults.push(`--audit-mode must be async or sync, got "${config.auditMode}"`);
  }
  if (config.limitsRedis !== undefined && !isRedisUrl(config.limitsRedis)) {
    faults.push(
      "--limits-redis must be redis://HOST:PORT/DB or rediss://..., without a password: --limits-redis-password-file has it",
    );
  }
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(masterId)) {
    faults.push(`--name must have 1 to 63 letters, digits, ".", "_" or "-"`);
  }
  return faults;
}

function isRedisUrl(text: string): boolean {
  const url = URL.parse(text);
  return url !== null && /^rediss?:$/.test(url.protocol) && url.hostname !== "" && !url.password;
}

/** API keys would cross the network in the clear. */
function bindFaults({ httpHost }: MasterConfig): string[] {
  if (isLoopback(httpHost)) return [];
  return [
    `--http-host ${httpHost} is reachable from other machines, and the HTTP API has no TLS of its own: put a proxy with TLS before 127.0.0.1, or give --insecure-bind to serve it in the clear`,
  ];
}

/** Whether nodes of other machines can or must be reached. */
function leavesLoopback({ grpcHost, peers }: Pick<MasterConfig, "grpcHost" | "peers">): boolean {
  const hosts = [...peers.values()].map((address) => splitHostPort(address)[0]);
  return ![grpcHost, ...hosts].every(isLoopback);
}
