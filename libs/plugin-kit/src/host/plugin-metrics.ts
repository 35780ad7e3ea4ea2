import { ReadMetric } from "@heddle/observability/read-metric";
import type { Registry } from "prom-client";
import type { PluginStatus } from "./hosted-plugin.ts";
import type { PluginSet } from "./plugin-set.ts";

type Figure = readonly [
  name: string,
  type: "gauge" | "counter",
  help: string,
  read: (status: PluginStatus) => number,
];

const FIGURES: readonly Figure[] = [
  ["up", "gauge", "1 while the plugin serves.", ({ state }) => (state === "ready" ? 1 : 0)],
  ["calls_total", "counter", "Calls of the plugin.", ({ calls }) => calls],
  [
    "restarts_total",
    "counter",
    "Starts of its process after the first.",
    ({ restarts }) => restarts,
  ],
  ["memory_bytes", "gauge", "Memory of its process.", ({ memoryBytes }) => memoryBytes],
];

/** `heddle_plugin_...` in /metrics; a plugin that was never loaded is in none of them. */
export function exposePluginMetrics(
  registry: Registry,
  plugins: Pick<PluginSet, "statuses">,
): void {
  const loaded = () => plugins.statuses().filter(({ description }) => description !== undefined);
  const labelsOf = ({ description }: PluginStatus) => ({ plugin: description?.name ?? "" });
  for (const [name, type, help, read] of FIGURES) {
    new ReadMetric(registry, { name: `heddle_plugin_${name}`, type, help }, () =>
      loaded().map((status) => ({ labels: labelsOf(status), value: read(status) })),
    );
  }
  const faults = {
    name: "heddle_plugin_faults_total",
    type: "counter",
    help: "Faults by kind.",
  } as const;
  new ReadMetric(registry, faults, () =>
    loaded().flatMap((status) =>
      Object.entries(status.faults).map(([kind, value]) => {
        return { labels: { ...labelsOf(status), kind }, value };
      }),
    ),
  );
}
