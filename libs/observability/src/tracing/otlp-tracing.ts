import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { context, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  RandomIdGenerator,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { OtlpSettings, TraceSampler } from "./otlp-settings.ts";
import type { OpenSpan, SpanAttributes, SpanStart, Tracing } from "./span.ts";
import type { TraceContext } from "./trace-context.ts";

const KINDS = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
} as const satisfies Record<SpanStart["kind"], SpanKind>;

/** Longer values are cut, and a span has no more of each. */
const LIMITS = { attributeValueLengthLimit: 1_024, attributeCountLimit: 64, eventCountLimit: 32 };
/** How long an end may wait for the receiver. */
const CLOSE_MS = 3_000;

/** Traces by OpenTelemetry's SDK, sent in the background. Loaded only where it is asked for. */
export async function openOtlpTracing(settings: OtlpSettings): Promise<Tracing> {
  const { service, instance, sampler, batch } = settings;
  const named = { "service.name": service, "service.instance.id": instance };
  const given = detectResources({ detectors: [envDetector] });
  const ids = new GivenIds();
  const provider = new TracerProvider({
    resource: given.merge(resourceFromAttributes({ "service.namespace": "heddle", ...named })),
    sampler: samplerOf(sampler),
    spanLimits: LIMITS,
    idGenerator: ids,
    spanProcessors: [new BatchSpanProcessor({ exporter: await exporterOf(settings), ...batch })],
  });
  const tracer = provider.getTracer("heddle");
  return {
    start: ({ name, kind, parent, attributes = {}, startMs, ids: given }) => {
      const options = { kind: KINDS[kind], attributes: known(attributes), startTime: startMs };
      const within = parent ? trace.setSpanContext(ROOT, remote(parent)) : ROOT;
      return opened(ids.with(given, () => tracer.startSpan(name, options, within)));
    },
    close: async () => {
      await resolvesWithin(provider.shutdown(), CLOSE_MS).catch(() => {});
    },
  };
}

const ROOT = context.active();

function remote({ traceId, spanId, isSampled }: TraceContext) {
  return { traceId, spanId, traceFlags: isSampled ? 1 : 0, isRemote: true };
}

function opened(span: Span): OpenSpan {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    context: { traceId, spanId, isSampled: (traceFlags & 1) === 1 },
    set: (attributes) => void span.setAttributes(known(attributes)),
    event: (name) => void span.addEvent(name),
    end: (fault, endMs) => {
      if (!span.isRecording()) return;
      if (fault !== undefined) {
        span.setAttribute("error.type", fault);
        span.setStatus({ code: SpanStatusCode.ERROR, message: fault });
      }
      span.end(endMs);
    },
  };
}

function known(attributes: SpanAttributes) {
  const pairs = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    pairs.map(([name, value]) => [name, typeof value === "object" ? [...value] : value]),
  );
}

/** Random ids, but for spans whose ids others have already. */
class GivenIds extends RandomIdGenerator {
  #given: SpanStart["ids"];
  readonly #random = new RandomIdGenerator();

  with(given: SpanStart["ids"], start: () => Span): Span {
    this.#given = given;
    try {
      return start();
    } finally {
      this.#given = undefined;
    }
  }

  override generateTraceId = () => this.#given?.traceId ?? this.#random.generateTraceId();
  override generateSpanId = () => this.#given?.spanId ?? this.#random.generateSpanId();
}

function samplerOf({ isParentBased, ratio }: TraceSampler) {
  const root =
    ratio === 0
      ? new AlwaysOffSampler()
      : ratio === 1
        ? new AlwaysOnSampler()
        : new TraceIdRatioBasedSampler(ratio);
  return isParentBased ? new ParentBasedSampler({ root }) : root;
}

/** The exporter reads headers, timeouts, compression and certificates from OTEL_* by itself. */
async function exporterOf({ protocol, url }: OtlpSettings): Promise<SpanExporter> {
  if (protocol === "http/json") {
    const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-http");
    return new OTLPTraceExporter({ url });
  }
  const { OTLPTraceExporter } = await import("@opentelemetry/exporter-trace-otlp-proto");
  return new OTLPTraceExporter({ url });
}
