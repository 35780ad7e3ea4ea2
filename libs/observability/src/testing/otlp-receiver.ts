import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** A span as a receiver gets it, with its attributes by name. */
export interface ReceivedSpan {
  readonly service: string;
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly events: readonly string[];
  readonly status: number;
  readonly seconds: number;
}

/** A receiver of OTLP over HTTP in JSON, as a collector has. */
export class OtlpReceiver {
  readonly spans: ReceivedSpan[] = [];
  /** The latest of each service and instance, by `SERVICE INSTANCE`. */
  readonly metrics = new Map<string, ReceivedMetrics>();
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on("request", async (request, reply) => {
      const body = await text(request);
      const isTraces = request.url === "/v1/traces";
      if (isTraces) this.spans.push(...spansOf(JSON.parse(body) as Exported));
      else if (request.url === "/v1/metrics")
        this.#takeMetrics(JSON.parse(body) as ExportedMetrics);
      const isKnown = isTraces || request.url === "/v1/metrics";
      reply.writeHead(isKnown ? 200 : 404, { "content-type": "application/json" }).end("{}");
    });
  }

  static async start(): Promise<OtlpReceiver> {
    const server = createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    return new OtlpReceiver(server);
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The span of a trace with such a name, once it was received. */
  named(traceId: string, name: RegExp): ReceivedSpan | undefined {
    return this.spans.find((span) => span.traceId === traceId && name.test(span.name));
  }

  #takeMetrics({ resourceMetrics }: ExportedMetrics): void {
    for (const { resource, scopeMetrics } of resourceMetrics) {
      const named = (name: string) =>
        resource.attributes.find(({ key }) => key === name)?.value.stringValue ?? "";
      const source = `${named("service.name")} ${named("service.instance.id")}`;
      this.metrics.set(
        source,
        scopeMetrics.flatMap(({ metrics }) => metrics),
      );
    }
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Attributes of points are texts. */
interface ReceivedPoint {
  readonly attributes: readonly {
    readonly key: string;
    readonly value: { readonly stringValue: string };
  }[];
  readonly asDouble?: number | string;
  readonly count?: string;
  readonly sum?: number;
  readonly bucketCounts?: readonly string[];
  readonly explicitBounds?: readonly number[];
}

interface ReceivedPoints {
  readonly dataPoints: readonly ReceivedPoint[];
  readonly isMonotonic?: boolean;
}

/** Metrics as OTLP has them in JSON. */
export type ReceivedMetrics = readonly {
  readonly name: string;
  readonly gauge?: ReceivedPoints;
  readonly sum?: ReceivedPoints;
  readonly histogram?: ReceivedPoints;
}[];

interface ExportedMetrics {
  readonly resourceMetrics: readonly {
    readonly resource: Pick<ReceivedPoint, "attributes">;
    readonly scopeMetrics: readonly { readonly metrics: ReceivedMetrics }[];
  }[];
}

interface Value {
  readonly stringValue?: string;
  readonly intValue?: number | string;
  readonly doubleValue?: number;
  readonly boolValue?: boolean;
  readonly arrayValue?: { readonly values: readonly Value[] };
}
type Attributes = readonly { readonly key: string; readonly value: Value }[];
interface Exported {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: Attributes };
    readonly scopeSpans: readonly { readonly spans: readonly ExportedSpan[] }[];
  }[];
}
interface ExportedSpan {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: Attributes;
  readonly events?: readonly { readonly name: string }[];
  readonly status?: { readonly code?: number };
}

function spansOf({ resourceSpans }: Exported): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) => {
    const service = String(valuesOf(resource.attributes)["service.name"]);
    return scopeSpans.flatMap(({ spans }) => spans.map((span) => received(service, span)));
  });
}

function received(service: string, span: ExportedSpan): ReceivedSpan {
  const { name, traceId, spanId, parentSpanId = "", events = [], status } = span;
  return {
    service,
    name,
    traceId,
    spanId,
    parentSpanId,
    attributes: valuesOf(span.attributes),
    events: events.map((event) => event.name),
    status: status?.code ?? 0,
    seconds: Number(BigInt(span.endTimeUnixNano) - BigInt(span.startTimeUnixNano)) / 1e9,
  };
}

function valuesOf(attributes: Attributes): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, plainValue(value)]));
}

function plainValue({ stringValue, intValue, doubleValue, boolValue, arrayValue }: Value): unknown {
  if (arrayValue) return arrayValue.values.map(plainValue);
  return stringValue ?? (intValue === undefined ? (doubleValue ?? boolValue) : Number(intValue));
}
