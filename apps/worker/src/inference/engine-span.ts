import type { EngineEvent, Usage } from "@heddle/contracts/engine";
import type { Start__Output } from "@heddle/contracts/generated/heddle/v1/Start";
import type { OpenSpan } from "@heddle/observability/tracing/span";
import { parseTraceParent } from "@heddle/observability/tracing/trace-context";
import { tracing } from "@heddle/observability/tracing/tracing";

/** One request in an engine, from its arrival at the worker to its last event. */
export class EngineSpan {
  readonly #span: OpenSpan;
  #hasToken = false;
  readonly #reasons: string[] = [];

  private constructor(span: OpenSpan) {
    this.#span = span;
  }

  /** Undefined where the worker traces nothing, or the call is not traced. */
  static open({ deployment, traceparent }: Start__Output): EngineSpan | undefined {
    const own = tracing();
    const parent = own && parseTraceParent(traceparent);
    if (!own || !parent) return undefined;
    const attributes = { "heddle.deployment": deployment };
    const name = `engine ${deployment}`;
    return new EngineSpan(own.start({ name, kind: "server", parent, attributes }));
  }

  observe(event: EngineEvent): void {
    if (event.type === "started") {
      this.#span.set({ "heddle.engine.queue_time": event.queuedMs / 1_000 });
    } else if (event.type === "delta") {
      if (!this.#hasToken) this.#span.event("first token");
      this.#hasToken = true;
    } else if (event.type === "finish") this.#reasons.push(event.reason);
    else if (event.type === "failed") this.#span.end(event.error.code);
    else if (event.type === "done") this.#onDone(event.usage);
  }

  #onDone({ promptTokens, completionTokens, cachedTokens }: Usage): void {
    this.#span.set({
      "gen_ai.usage.input_tokens": promptTokens,
      "gen_ai.usage.output_tokens": completionTokens,
      "gen_ai.usage.cache_read.input_tokens": cachedTokens,
      "gen_ai.response.finish_reasons": this.#reasons.length > 0 ? this.#reasons : undefined,
    });
    this.#span.end();
  }

  /** The stream to the master has broken. */
  abandon(): void {
    this.#span.end("cancelled");
  }
}
