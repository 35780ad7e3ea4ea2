import { collectDefaultMetrics, Registry } from "prom-client";
import { measureEventLoopLag } from "./event-loop-lag.ts";

/** Close to the longest interval of a libuv timer: it first fires after 24 days. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * A registry with the process's own metrics, labelled with its service. prom-client's event loop
 * monitor wakes the process a hundred times a second, which slows token generation on a small
 * machine. It is disabled; our own measurement replaces it.
 */
export function createRegistry(service: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  measureEventLoopLag(registry);
  return registry;
}
