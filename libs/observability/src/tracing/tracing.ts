import { AsyncLocalStorage } from "node:async_hooks";
import type { OtlpSettings } from "./otlp-settings.ts";
import type { OpenSpan, Tracing } from "./span.ts";

let present: Tracing | undefined;
const open = new AsyncLocalStorage<OpenSpan>();

/** Undefined unless this process sends traces. */
export function tracing(): Tracing | undefined {
  return present;
}

/** Loads OpenTelemetry and traces from now on; without settings nothing is loaded. */
export async function startTracing(settings: OtlpSettings | undefined): Promise<void> {
  if (!settings) return;
  const { openOtlpTracing } = await import("./otlp-tracing.ts");
  present = await openOtlpTracing(settings);
}

/** Ends tracing. */
export async function stopTracing(): Promise<void> {
  const ended = present;
  present = undefined;
  await ended?.close();
}

/** Runs what belongs to a span: log lines and further spans get its trace. */
export function withSpan<Result>(span: OpenSpan | undefined, run: () => Result): Result {
  return span ? open.run(span, run) : run();
}

/** The span that the present code runs for. */
export function currentSpan(): OpenSpan | undefined {
  return present && open.getStore();
}

/** A span's fields in log lines; none without one. */
export function traceFields(span: OpenSpan | undefined): Record<string, string> {
  if (!span) return {};
  const { traceId, spanId } = span.context;
  return { trace_id: traceId, span_id: spanId };
}
