import { isIP } from "node:net";
import { isHostPort, MAX_PORT } from "@heddle/base/network/network-address";
import { z } from "zod";
import { CATALOG_PROFILES } from "../catalog.ts";

/** As in libs/observability, which only processes load. */
const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;

/** Items of a list, and bytes of a text. */
const MAX_ITEMS = 256;
const MAX_TEXT = 4_096;

/** Messages follow the name of the setting: `--http-port must be ...`. */
const text = () => z.string("must be text").max(MAX_TEXT, `has more than ${MAX_TEXT} characters`);
const optionalText = (help: string) => text().default("").describe(help);
/** A path; in a configuration file it is relative to that file. */
const path = (help: string) => text().default("").meta({ description: help, format: "path" });

function whole(min: number, max: number, fallback: number, help: string) {
  const message = `must be a whole number from ${min} to ${max}`;
  return z.int(message).min(min, message).max(max, message).default(fallback).describe(help);
}

function choice<const T extends readonly string[]>(names: T, fallback: T[number], help: string) {
  const message = `must be one of ${names.join(", ")}`;
  return z
    .enum(names, message)
    .default(fallback as z.util.NoUndefined<T[number]>)
    .describe(help);
}

const toggle = (help: string) => z.boolean("must be true or false").default(false).describe(help);

/** A list in a file, or a text with commas. */
function list(help: string, check: (item: string) => string | undefined = () => undefined) {
  const message = "must be a list of text, or text with commas";
  return z
    .union([z.array(text()).max(MAX_ITEMS), text()], message)
    .transform((given, context) => {
      const items = typeof given === "string" ? given.split(",").filter(Boolean) : given;
      for (const item of items) {
        const fault = check(item);
        if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
      }
      return items;
    })
    .default([])
    .describe(help);
}

const PEER_FORM = `name=host:port,... with ports from 1 to ${MAX_PORT}`;
const NAME_FORM = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;

const peers = z
  .union(
    [z.record(z.string(), z.string()), text()],
    `takes ${PEER_FORM}, or a map of names to host:port`,
  )
  .transform((given, context) => {
    const pairs = typeof given === "string" ? pairsOf(given) : Object.entries(given);
    const read = new Map<string, string>();
    for (const [name, address] of pairs) {
      const fault = peerFault(name, address, read);
      if (fault === undefined) read.set(name, address);
      else context.addIssue({ code: "custom", message: fault });
    }
    return read as ReadonlyMap<string, string>;
  })
  .default(new Map())
  .describe("all masters including this one: name=host:port,... (gRPC)");

function pairsOf(given: string): [string, string][] {
  return given
    .split(",")
    .filter(Boolean)
    .map((part) => {
      const [, name = "", address = ""] = /^([^=]*)=(.*)$/.exec(part) ?? ["", part];
      return [name, address];
    });
}

function peerFault(name: string, address: string, others: ReadonlyMap<string, string>) {
  const known = others.get(name);
  if (known !== undefined && known !== address) return `names ${name} with two addresses`;
  if (NAME_FORM.test(name) && isHostPort(address)) return undefined;
  return `takes ${PEER_FORM}, got "${name}${address && `=${address}`}"`;
}

function originFault(origin: string): string | undefined {
  if (origin === "*" || /^https?:\/\/[^/\s,]+$/.test(origin)) return undefined;
  return `takes https://host,... or *, got "${origin}"`;
}

/** Every address would let each client name its own. */
const MIN_PREFIX = 1;

function proxyFault(proxy: string): string | undefined {
  const [address = "", prefix, ...more] = proxy.split("/");
  const family = isIP(address);
  const bits = family === 6 ? 128 : 32;
  const isPrefix = prefix === undefined || /^\d{1,3}$/.test(prefix);
  const length = Number(prefix ?? bits);
  const isInRange = length >= MIN_PREFIX && length <= bits;
  if (family !== 0 && more.length === 0 && isPrefix && isInRange) return undefined;
  return `takes addresses and networks, as 10.0.0.7 or fd00::/8, got "${proxy}"`;
}

function isRedisUrl(given: string): boolean {
  const url = URL.parse(given);
  return url !== null && /^rediss?:$/.test(url.protocol) && url.hostname !== "" && !url.password;
}

const REDIS_FORM =
  "must be redis://HOST:PORT/DB or rediss://..., without a password: limits_redis_password_file has it";

/**
 * All settings of a master: of its flags, its environment and its configuration file. The flag of
 * `http_port` is `--http-port`, its variable is HEDDLE_HTTP_PORT.
 */
export const masterSettings = z.strictObject({
  data: text()
    .min(1, "is empty")
    .default("~/.heddle/master")
    .meta({ description: "data directory", format: "path" }),
  http_host: text().default("127.0.0.1").describe("address of the HTTP APIs"),
  http_port: whole(0, MAX_PORT, 8080, "port of the HTTP APIs; 0 selects a free one"),
  grpc_host: text().default("127.0.0.1").describe("gRPC address for nodes"),
  grpc_port: whole(0, MAX_PORT, 8081, "gRPC port for nodes; 0 selects a free one"),
  http_cert_file: path(
    "PEM file with the certificate of HTTPS, and its chain; read again when changed",
  ),
  http_key_file: path("PEM file with the key of that certificate"),
  trusted_proxies: list(
    "addresses or networks of proxies whose X-Forwarded-For is believed: 10.0.0.7,fd00::/8",
    proxyFault,
  ),
  raft_port: whole(0, MAX_PORT, 0, "port for the other masters; 0 selects a free one"),
  cluster_token_file: path("cluster token file"),
  ca_file: path("file with the certificate authority of the nodes: key and certificate"),
  join_token_file: path("join token file of a new master"),
  certificate_seconds: whole(3, 31_536_000, 86_400, "lifetime of node certificates, in seconds"),
  secrets_key_file: path(
    "file with the keys that encrypt stored data (or HEDDLE_SECRETS_KEY, the key itself)",
  ),
  bootstrap_key_file: path("file with the first admin key"),
  enroll_key_file: path("file with a key by which workers and parameter servers join"),
  profile: choice(
    ["", ...CATALOG_PROFILES],
    "",
    "weights of the built-in models: demo, small, gpu or tiny",
  ),
  model_file: path("GGUF file for the built-in models, instead of a profile").refine(
    (file) => file === "" || file.endsWith(".gguf"),
    "must end in .gguf",
  ),
  auth_file: path("JSON file with the identity provider and the roles"),
  limits_redis: optionalText(
    "redis://HOST:PORT/DB or rediss:// that counts limits over all masters",
  ).refine((given) => given === "" || isRedisUrl(given), REDIS_FORM),
  limits_redis_password_file: path("its password"),
  moderation_judge: optionalText("the model that moderation-judge asks"),
  plugins: list("plugins: files, folders, packages, lists of them (.json)"),
  webhook_hosts: list("hosts of webhooks that are not public, or lack TLS"),
  event_sinks: list("copies of events: file:///DIR, s3://BUCKET/PREFIX, nats://HOST:PORT/SUBJECT"),
  event_witnesses: list("keys of witnesses of the event log: NAME+ID+BASE64"),
  audit_mode: choice(
    ["async", "sync"],
    "async",
    "async, or sync: calls of models wait until they are in the event log",
  ),
  name: text()
    .regex(NAME_FORM, 'must have 1 to 63 letters, digits, ".", "_" or "-"')
    .default("master-1")
    .describe("this master's name in the cluster"),
  peers,
  wal_segment_mib: whole(1, 1_024, 64, "size of a write-ahead log segment, in MiB"),
  snapshot_entries: whole(1, 10_000_000, 10_000, "log entries between snapshots"),
  task_logs_mib: whole(1, 1_000_000_000, 10_240, "maximum size of stored task logs, in MiB"),
  task_logs_hours: whole(1, 1_000_000, 168, "retention of task logs, in hours"),
  log_level: choice(LOG_LEVELS, "info", "debug, info, warn, error or silent"),
  otlp_endpoint: optionalText(
    "base URL of an OTLP receiver (HTTP) for traces and metrics; or the OTEL_* names",
  ),
  max_calls: whole(1, 1_000_000, 4_096, "maximum concurrent inference calls"),
  max_queued: whole(1, 1_000_000, 1_024, "maximum queued calls per model"),
  max_wait_ms: whole(1, 3_600_000, 30_000, "maximum queue time of a call, in ms"),
  deadline_ms: whole(1, 86_400_000, 600_000, "maximum duration of a call, in ms"),
  max_body_bytes: whole(1_024, 1_073_741_824, 4_194_304, "maximum request body, in bytes"),
  max_reading_bytes: whole(
    1_024,
    274_877_906_944,
    268_435_456,
    "maximum total of request bodies being read, and of calls in flight, in bytes",
  ),
  max_connections: whole(1, 1_000_000, 16_384, "maximum concurrent HTTP connections"),
  cors_origins: list("allowed CORS origins: https://a,... or *", originFault),
  max_heap_mib: whole(0, 100_000_000, 0, "maximum heap, in MiB; 0: three quarters of the memory"),
  drain_ms: whole(0, 3_600_000, 10_000, "grace period for running calls after SIGTERM, in ms"),
  lease_ms: whole(
    100,
    86_400_000,
    150_000,
    "lease of a worker's tasks after its last heartbeat, in ms",
  ),
  node_lost_ms: whole(
    100,
    86_400_000,
    30_000,
    "heartbeat timeout after which a worker is lost, in ms",
  ),
  acknowledge_ms: whole(100, 3_600_000, 30_000, "timeout for workers to acknowledge tasks, in ms"),
  tls: toggle("use TLS between nodes; always on except on loopback"),
  insecure_bind: toggle("serve HTTP beyond loopback without TLS"),
  insecure_nodes: toggle("allow plain text between nodes beyond loopback"),
});

export type MasterSettings = z.output<typeof masterSettings>;
export type MasterSettingName = keyof MasterSettings;
export const MASTER_SETTING_NAMES = Object.keys(masterSettings.shape) as MasterSettingName[];

/** Settings that SIGHUP changes in a running master; the others need a restart. */
const LIVE_SETTINGS = [
  "cors_origins",
  "drain_ms",
  "log_level",
  "max_calls",
  "max_queued",
  "max_wait_ms",
  "moderation_judge",
  "webhook_hosts",
] as const satisfies readonly MasterSettingName[];

export type LiveSetting = (typeof LIVE_SETTINGS)[number];

export function isLiveSetting(name: string): name is LiveSetting {
  return LIVE_SETTINGS.some((live) => live === name);
}
