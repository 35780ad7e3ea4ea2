import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";
import { currentSpan, traceFields } from "./tracing/tracing.ts";

/** Structured JSON log lines, never with prompts, answers or keys. */
export type Logger = PinoLogger;

/** What a part of a process logs to: fields, then a short message. */
export interface Log {
  info(fields: Readonly<Record<string, unknown>>, message: string): void;
  warn(fields: Readonly<Record<string, unknown>>, message: string): void;
  error(fields: Readonly<Record<string, unknown>>, message: string): void;
}

const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** The level in HEDDLE_LOG_LEVEL; `info` where it is absent or no level. */
export function logLevelOf(env: NodeJS.ProcessEnv): LogLevel {
  return LOG_LEVELS.find((level) => level === env["HEDDLE_LOG_LEVEL"]) ?? "info";
}

/** Fields that no line shows, alone or one level deep. */
const SECRET_FIELDS = [
  "authorization",
  "messages",
  "prompt",
  "input",
  "api_key",
  "apiKey",
  "clusterToken",
  "jobToken",
  "privateKey",
];

export interface LoggerOptions {
  /** The process's role, on every line. */
  readonly service: string;
  readonly level: LogLevel;
  /** Standard output by default, written synchronously so that no line is lost in a crash. */
  readonly destination?: DestinationStream | undefined;
}

/** A logger whose lines carry the service, the level's name and an ISO 8601 time. */
export function createLogger({ service, level, destination }: LoggerOptions): Logger {
  const options = {
    level,
    base: { service, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    // Of the call that a line is about, where traces are on.
    mixin: () => traceFields(currentSpan()),
    formatters: { level: (label: string) => ({ level: label }) },
    redact: [...SECRET_FIELDS.flatMap((name) => [name, `*.${name}`]), "req.headers.authorization"],
  };
  return pino(options, destination ?? pino.destination({ dest: 1, sync: true }));
}
