import type { Log } from "@heddle/observability/logger";
import { MetricsEndpoint } from "@heddle/observability/metrics-endpoint";
import type { Hides } from "@heddle/observability/metrics-text";
import { OtlpMetrics } from "@heddle/observability/otlp-metrics";
import { createRegistry } from "@heddle/observability/registry";
import type { OtlpMetricsSettings } from "@heddle/observability/tracing/otlp-settings";
import type { Registry } from "prom-client";
import type { ReadFlags } from "./node-flags.ts";
import { exposeNodeMetrics } from "./node-metrics.ts";
import type { RunningNode } from "./run-node.ts";

type NodeMetrics = ReadFlags["metrics"] & {
  /** Where they are sent too. */
  readonly otlp?: OtlpMetricsSettings | undefined;
  readonly log: Pick<Log, "warn">;
  /** Adds metrics of its own. */
  readonly expose?: (registry: Registry) => void;
};

/**
 * Serves the metrics of a node over HTTP, until the node is closed. `service` labels its series.
 * Anyone may read them, tasks of this machine too, so series of jobs go to the receiver of OTLP alone.
 */
export async function withMetrics(
  service: string,
  node: RunningNode,
  { host, port, otlp, log, expose }: NodeMetrics,
): Promise<RunningNode> {
  const registry = createRegistry(service);
  exposeNodeMetrics(registry, node);
  expose?.(registry);
  const place = { host, port, flag: "--metrics-port" };
  const listening = MetricsEndpoint.listen(place, registry, { hides: isOfJob });
  const endpoint = await listening.catch(async (error: unknown) => {
    await node.close(0);
    throw error;
  });
  const sender = otlp && new OtlpMetrics(otlp, registry, log);
  const close = async (drainMs: number) => {
    await sender?.close();
    await node.close(drainMs);
    await endpoint.close();
  };
  return { ...node, metrics: endpoint.url, close };
}

const isOfJob: Hides = (labels) => Object.hasOwn(labels, "job");
