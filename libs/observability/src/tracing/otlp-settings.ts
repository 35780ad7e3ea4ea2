import { AppError } from "@heddle/base/errors";

/** How and where to a process sends its traces. */
export interface OtlpSettings {
  readonly service: string;
  /** The node's or master's name. */
  readonly instance: string;
  /** The whole URL for traces. */
  readonly url: string;
  readonly protocol: "http/protobuf" | "http/json";
  readonly sampler: TraceSampler;
  readonly batch: Batch;
}

/** Spans that wait are bounded: those beyond the queue are dropped. */
interface Batch {
  readonly maxQueueSize: number;
  readonly maxExportBatchSize: number;
  readonly scheduledDelayMillis: number;
  readonly exportTimeoutMillis: number;
}

/** Samples spans without a parent; others follow their parent where `isParentBased`. */
export interface TraceSampler {
  readonly isParentBased: boolean;
  /** 0..1 */
  readonly ratio: number;
}

/** How and where to a process sends its metrics. */
export interface OtlpMetricsSettings {
  readonly service: string;
  readonly instance: string;
  /** The whole URL for metrics. */
  readonly url: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
}

/** What asks for them, beside the environment. */
interface Asked {
  /** The value of --otlp-endpoint: the receiver's base URL. */
  readonly endpoint: string | undefined;
  readonly service: string;
  readonly instance: string;
}

const PROTOCOLS = ["http/protobuf", "http/json"] as const;
const SAMPLERS = ["always_on", "always_off", "traceidratio"];
const MAX_SPANS = 65_536;
const MAX_DELAY_MS = 600_000;

/**
 * The settings by the flag and OpenTelemetry's variables; undefined where none asks for traces. A flag
 * takes precedence. Throws an AppError `invalid_value` that names what is wrong.
 */
export function readOtlpSettings(asked: Asked, env: NodeJS.ProcessEnv): OtlpSettings | undefined {
  const url = urlOf("traces", asked.endpoint, env);
  if (url === undefined) return undefined;
  const maxQueueSize = whole(env, "OTEL_BSP_MAX_QUEUE_SIZE", 2_048, MAX_SPANS);
  return {
    service: env["OTEL_SERVICE_NAME"] || asked.service,
    instance: asked.instance,
    url,
    protocol: protocolOf(env),
    sampler: samplerOf(env),
    batch: {
      maxQueueSize,
      maxExportBatchSize: Math.min(
        maxQueueSize,
        whole(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, MAX_SPANS),
      ),
      scheduledDelayMillis: whole(env, "OTEL_BSP_SCHEDULE_DELAY", 5_000, MAX_DELAY_MS),
      exportTimeoutMillis: whole(env, "OTEL_BSP_EXPORT_TIMEOUT", 10_000, MAX_DELAY_MS),
    },
  };
}

/** Likewise for metrics, which go as JSON. */
export function readOtlpMetrics(
  { endpoint, service, instance }: Asked,
  env: NodeJS.ProcessEnv,
): OtlpMetricsSettings | undefined {
  const url = urlOf("metrics", endpoint, env);
  if (url === undefined) return undefined;
  return {
    service: env["OTEL_SERVICE_NAME"] || service,
    instance,
    url,
    intervalMs: whole(env, "OTEL_METRIC_EXPORT_INTERVAL", 60_000, MAX_DELAY_MS),
    timeoutMs: whole(env, "OTEL_METRIC_EXPORT_TIMEOUT", 30_000, MAX_DELAY_MS),
  };
}

type Signal = "traces" | "metrics";

/** Undefined where none asks for the signal. */
function urlOf(
  signal: Signal,
  endpoint: string | undefined,
  env: NodeJS.ProcessEnv,
): string | undefined {
  const name = signal.toUpperCase();
  const isOff = env["OTEL_SDK_DISABLED"]?.toLowerCase() === "true";
  if (isOff || env[`OTEL_${name}_EXPORTER`] === "none") return undefined;
  if (endpoint) return below(checkedUrl("--otlp-endpoint", endpoint), signal);
  const own = `OTEL_EXPORTER_OTLP_${name}_ENDPOINT`;
  if (env[own]) return checkedUrl(own, env[own]).href;
  const base = "OTEL_EXPORTER_OTLP_ENDPOINT";
  return env[base] ? below(checkedUrl(base, env[base]), signal) : undefined;
}

function below(base: URL, signal: Signal): string {
  return `${base.href.replace(/\/$/, "")}/v1/${signal}`;
}

function checkedUrl(name: string, text: string): URL {
  const url = URL.parse(text);
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new AppError("invalid_value", `${name} takes http://HOST:PORT or https://..., not ${text}`);
}

function protocolOf(env: NodeJS.ProcessEnv): OtlpSettings["protocol"] {
  const traces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
  const name = env[traces] ? traces : "OTEL_EXPORTER_OTLP_PROTOCOL";
  const text = env[name] || "http/protobuf";
  const protocol = PROTOCOLS.find((each) => each === text);
  if (protocol) return protocol;
  const message = `${name} takes ${PROTOCOLS.join(" or ")}, not ${text}: traces go over HTTP`;
  throw new AppError("invalid_value", message);
}

function samplerOf(env: NodeJS.ProcessEnv): TraceSampler {
  const text = env["OTEL_TRACES_SAMPLER"] || "parentbased_always_on";
  const kind = text.replace(/^parentbased_/, "");
  if (!SAMPLERS.includes(kind)) {
    const names = SAMPLERS.flatMap((name) => [name, `parentbased_${name}`]).join(", ");
    throw new AppError("invalid_value", `OTEL_TRACES_SAMPLER takes ${names}, not ${text}`);
  }
  const ratio = kind === "traceidratio" ? ratioOf(env["OTEL_TRACES_SAMPLER_ARG"]) : 1;
  return { isParentBased: kind !== text, ratio: kind === "always_off" ? 0 : ratio };
}

function ratioOf(text = "1"): number {
  const ratio = Number(text);
  if (text !== "" && ratio >= 0 && ratio <= 1) return ratio;
  throw new AppError("invalid_value", `OTEL_TRACES_SAMPLER_ARG takes a number 0..1, not ${text}`);
}

function whole(env: NodeJS.ProcessEnv, name: string, fallback: number, max: number): number {
  const text = env[name];
  if (!text) return fallback;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= 1 && value <= max) return value;
  throw new AppError("invalid_value", `${name} takes a whole number 1..${max}, not ${text}`);
}
