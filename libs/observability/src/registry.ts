import { collectDefaultMetrics, Registry } from "prom-client";

/** A registry that already holds the process's own metrics, labelled with its service. */
export function createRegistry(service: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry });
  return registry;
}
