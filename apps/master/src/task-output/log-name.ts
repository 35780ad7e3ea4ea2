import { AppError } from "@heddle/base/errors";
import type { LogFile } from "@heddle/contracts/generated/heddle/v1/LogFile";

/** What the program of a task writes. */
export const LOG_STREAMS = ["stdout", "stderr"] as const;
export type OutputStream = (typeof LOG_STREAMS)[number];
/** All that workers ship: `metrics` has lines of libs/contracts/src/metrics/metric-record.ts. */
const STREAMS = [...LOG_STREAMS, "metrics"] as const;
export type LogStream = (typeof STREAMS)[number];

/** One stream of one task; a replacement of the task has its own. */
export interface LogName {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  /** The task's incarnation; absent for the first. */
  readonly incarnation?: number | undefined;
  readonly stream: LogStream;
}

/** Throws an AppError `invalid_value` on an invalid name, since it becomes part of a path. */
export function logNameOf(file: LogFile | null | undefined): LogName {
  const { jobId = "", attempt = 0, rank = 0, incarnation = 0 } = file?.task ?? {};
  const stream = STREAMS.find((name) => name === file?.stream);
  if (stream && /^[A-Za-z0-9_-]{1,64}$/.test(jobId)) {
    return { jobId, attempt, rank, ...(incarnation > 0 && { incarnation }), stream };
  }
  throw new AppError("invalid_value", `${JSON.stringify(file)} names no log`);
}

export function logFileOf({ jobId, attempt, rank, incarnation, stream }: LogName): LogFile {
  return { task: { jobId, attempt, rank, incarnation: incarnation ?? 0 }, stream };
}

/** The name of the file in its job's folder, and the key in maps. */
export function logFileName(name: Omit<LogName, "jobId">): string {
  const { attempt, rank, incarnation, stream } = name;
  return `${attempt}.${rank}${incarnation ? `.${incarnation}` : ""}.${stream}`;
}

/** The log name of a file in a job's folder; undefined for any other file. */
export function parseFileName(jobId: string, text: string): LogName | undefined {
  const shape = /^(\d+)\.(\d+)(?:\.(\d+))?\.([a-z]+)$/;
  const [, attempt, rank, incarnation, name] = shape.exec(text) ?? [];
  const stream = STREAMS.find((each) => each === name);
  if (stream === undefined) return undefined;
  return {
    jobId,
    attempt: Number(attempt),
    rank: Number(rank),
    ...(incarnation !== undefined && { incarnation: Number(incarnation) }),
    stream,
  };
}
