import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { StepQueue } from "@heddle/base/async/step-queue";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { type Hides, MetricsText } from "@heddle/observability/metrics-text";
import { OtlpMetrics } from "@heddle/observability/otlp-metrics";
import { createRegistry } from "@heddle/observability/registry";
import type { OtlpMetricsSettings } from "@heddle/observability/tracing/otlp-settings";
import type { Registry } from "prom-client";
import type { ReadFlags } from "./node-flags.ts";
import { exposeNodeMetrics } from "./node-metrics.ts";
import type { RunningNode } from "./run-node.ts";

const MAX_CONNECTIONS = 32;
const REQUEST_TIMEOUT_MS = 5_000;

type MetricsPlace = ReadFlags["metrics"] & {
  /** Where they are sent too. */
  readonly otlp?: OtlpMetricsSettings | undefined;
  readonly log: Pick<Log, "warn">;
  /** Adds metrics of its own. */
  readonly expose?: (registry: Registry) => void;
};

/**
 * Serves `GET /metrics` and `GET /healthz` of a node over HTTP, until the node is closed. `service`
 * labels its series. Anyone may read them, tasks of this machine too, so series of jobs go to the
 * receiver of OTLP alone.
 */
export async function withMetrics(
  service: string,
  node: RunningNode,
  { host, port, otlp, log, expose }: MetricsPlace,
): Promise<RunningNode> {
  const registry = createRegistry(service);
  exposeNodeMetrics(registry, node);
  expose?.(registry);
  const shown = new MetricsText(registry, new StepQueue("reads of metrics"), () => isOfJob);
  const server = createServer(
    { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    (request, response) => void answer(request, response, shown),
  );
  server.maxConnections = MAX_CONNECTIONS;
  try {
    await once(server.listen(port, host), "listening");
  } catch (cause) {
    await node.close(0);
    if ((cause as NodeJS.ErrnoException).code !== "EADDRINUSE") throw cause;
    const message = `the address ${host}:${port} is in use. Stop what listens there, or choose another --metrics-port.`;
    throw new AppError("unavailable", message, { cause });
  }
  const sender = otlp && new OtlpMetrics(otlp, registry, log);
  const close = async (drainMs: number) => {
    await sender?.close();
    await node.close(drainMs);
    await closed(server);
  };
  return { ...node, metrics: urlOf(server), close };
}

const isOfJob: Hides = (labels) => Object.hasOwn(labels, "job");

async function answer(
  { method, url }: IncomingMessage,
  response: ServerResponse,
  shown: MetricsText,
): Promise<void> {
  const path = url?.split("?")[0];
  const isRead = method === "GET" || method === "HEAD";
  if (isRead && path === "/healthz") return text(response, 200, "ok\n");
  if (!isRead || path !== "/metrics") {
    return text(response, isRead ? 404 : 405, "This port serves GET /metrics and GET /healthz.\n");
  }
  try {
    text(response, 200, Buffer.concat(await shown.pieces()), shown.contentType);
  } catch (error) {
    text(response, 500, `The metrics cannot be read: ${String(error)}\n`);
  }
}

function text(
  response: ServerResponse,
  status: number,
  body: string | Buffer,
  type = "text/plain",
): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(body) });
  response.end(body);
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo;
  return `http://${family === "IPv6" ? `[${address}]` : address}:${port}/metrics`;
}

async function closed(server: Server): Promise<void> {
  const done = once(server, "close");
  server.close();
  server.closeAllConnections();
  await done;
}
