import type { AppError } from "@heddle/base/errors";
import type { ModelRecord } from "@heddle/control/state";
import type { OpenSpan } from "@heddle/observability/tracing/span";
import { currentSpan, tracing } from "@heddle/observability/tracing/tracing";
import type { UsageRow } from "../usage/usage-row.ts";

/** OpenTelemetry's names of operations, by the ends of paths; chats are the others. */
const OPERATIONS = [
  [/\/completions\b(?<!chat\/completions)/, "text_completion"],
  [/\/embeddings\b/, "embeddings"],
  [/\/rerank\b/, "rerank"],
  [/\/moderations\b/, "moderation"],
] as const;

/** The span of a call of a model, within that of its request; undefined where traces are off. */
export function openCallSpan(path: string, model: ModelRecord): OpenSpan | undefined {
  const operation = OPERATIONS.find(([form]) => form.test(path))?.[1] ?? "chat";
  return tracing()?.start({
    name: `${operation} ${model.id}`,
    kind: "internal",
    parent: currentSpan()?.context,
    attributes: {
      "gen_ai.provider.name": "heddle",
      "gen_ai.operation.name": operation,
      "gen_ai.request.model": model.id,
      "gen_ai.response.model": model.deployment,
    },
  });
}

/** What is known of a call at its end, in milliseconds. */
export interface CallTimes {
  readonly queuedMs: number | undefined;
  readonly firstTokenMs: number | undefined;
}

export function endCallSpan(
  span: OpenSpan,
  row: UsageRow,
  reasons: readonly string[],
  times: CallTimes,
  error: AppError | undefined,
): void {
  const { queuedMs, firstTokenMs } = times;
  span.set({
    "gen_ai.response.finish_reasons": error ? undefined : reasons,
    "gen_ai.usage.input_tokens": row.promptTokens,
    "gen_ai.usage.output_tokens": row.completionTokens,
    "gen_ai.usage.cache_read.input_tokens": row.cachedTokens,
    "gen_ai.response.time_to_first_chunk": seconds(firstTokenMs),
    "heddle.engine.queue_time": seconds(queuedMs),
    "heddle.node": row.node,
    "heddle.project": row.project,
  });
  span.end(error?.code);
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1_000;
}
