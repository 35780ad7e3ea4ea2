import { collectDefaultMetrics, Registry } from "prom-client";
import { measureEventLoopLag } from "./event-loop-lag.ts";

/** The longest interval that a timer of libuv holds, nearly: its first end is 24 days away. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * A registry that already holds the process's own metrics, labelled with its service. prom-client's
 * monitor of the event loop wakes the process a hundred times a second, which on a small machine is
 * taken from the tokens: it is put to sleep, and our own measure stands in for it.
 */
export function createRegistry(service: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  measureEventLoopLag(registry);
  return registry;
}
