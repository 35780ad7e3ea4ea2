import type { TraceContext } from "./trace-context.ts";

export type SpanAttributes = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

/** What a span begins with. */
export interface SpanStart {
  readonly name: string;
  readonly kind: "internal" | "server" | "client" | "producer" | "consumer";
  /** Absent for the first span of a trace. */
  readonly parent?: TraceContext | undefined;
  readonly attributes?: SpanAttributes;
  /** The present by default. */
  readonly startMs?: number | undefined;
  /** Ids that others have already; random if absent. */
  readonly ids?: Pick<TraceContext, "traceId" | "spanId"> | undefined;
}

/** A span that has begun and not ended. */
export interface OpenSpan {
  readonly context: TraceContext;
  set(attributes: SpanAttributes): void;
  event(name: string): void;
  /** With the code of the error, if it failed. Later calls do nothing. */
  end(fault?: string, endMs?: number): void;
}

export interface Tracing {
  start(start: SpanStart): OpenSpan;
  /** Sends what waits, for at most a few seconds. */
  close(): Promise<void>;
}
