import { createHash } from "node:crypto";
import { parseTraceParent, type TraceContext, traceParentOf } from "./trace-context.ts";

/** The variable of a job's environment that names its trace, as OpenTelemetry's SDKs read it. */
export const JOB_TRACE = "TRACEPARENT";

/** The content of the job's variable: its own span, and the parent of that. */
export interface JobTrace {
  readonly job: TraceContext;
  /** Undefined for a job whose span is the first of its trace. */
  readonly parent: TraceContext | undefined;
}

/** Every process derives the same span of the job, which is sent when the job has ended. */
export function jobTraceOf(
  jobId: string,
  environment: Readonly<Record<string, string>>,
): JobTrace | undefined {
  const named = parseTraceParent(environment[JOB_TRACE]);
  if (!named) return undefined;
  const spanId = jobSpanId(jobId);
  const parent = named.spanId === spanId ? undefined : named;
  return { job: { ...named, spanId }, parent };
}

/**
 * The variable for a job that a traced request submits. With an id of its client's only the
 * caller's trace counts, as the job may be submitted again with the same spec.
 */
export function newJobTrace(
  jobId: string,
  request: { readonly span: TraceContext; readonly caller: TraceContext | undefined },
  isIdGiven: boolean,
): string {
  const { span, caller } = request;
  if (!isIdGiven) return traceParentOf(span);
  const { traceId } = caller ?? { traceId: digest(`trace of ${jobId}`, 32) };
  return traceParentOf({ traceId, spanId: jobSpanId(jobId), isSampled: span.isSampled });
}

function jobSpanId(jobId: string): string {
  return digest(jobId, 16);
}

function digest(text: string, digits: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, digits);
}
