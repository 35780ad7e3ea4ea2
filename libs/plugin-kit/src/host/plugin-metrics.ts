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

/** `heddle_plugin_...` in /metrics. A refused plugin is named by its place: its name is another's, or not known. */
export function exposePluginMetrics(
  registry: Registry,
  plugins: Pick<PluginSet, "statuses">,
): void {
  // Of those that were refused at one place, the last.
  const named = () => new Map(plugins.statuses().map((status) => [nameOf(status), status]));
  for (const [name, type, help, read] of FIGURES) {
    new ReadMetric(registry, { name: `heddle_plugin_${name}`, type, help }, () =>
      Array.from(named(), ([plugin, status]) => ({ labels: { plugin }, value: read(status) })),
    );
  }
  const faults = {
    name: "heddle_plugin_faults_total",
    type: "counter",
    help: "Faults by kind.",
  } as const;
  new ReadMetric(registry, faults, () =>
    [...named()].flatMap(([plugin, { faults }]) =>
      Object.entries(faults).map(([kind, value]) => ({ labels: { plugin, kind }, value })),
    ),
  );
}

function nameOf({ state, description, from }: PluginStatus): string {
  return state === "refused" ? from : (description?.name ?? from);
}
