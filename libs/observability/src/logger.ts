import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";

/** Structured JSON log lines, never with prompts, answers or keys. */
export type Logger = PinoLogger;

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

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
    formatters: { level: (label: string) => ({ level: label }) },
    redact: ["*.authorization", "*.messages", "*.prompt", "req.headers.authorization"],
  };
  return pino(options, destination ?? pino.destination({ dest: 1, sync: true }));
}
