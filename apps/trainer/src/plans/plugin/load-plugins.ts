import { AppError } from "@heddle/base/errors";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import type { Log } from "@heddle/observability/logger";
import { loadPlugin } from "@heddle/plugin-kit/loading/load-plugin";
import type { Environment } from "@heddle/training/environments/environment";
import { ENVIRONMENTS } from "@heddle/training/environments/environments";
import type { PluginAlgorithm } from "@heddle/training/plugins/plugin";
import { PLUGIN_TOOLKIT } from "@heddle/training/plugins/toolkit";

/** The environments and algorithms of a trainer, built in or of its plugins. */
export interface LoadedPlugins {
  readonly environments: ReadonlyMap<string, () => Environment>;
  /** The algorithms of plugins only. */
  readonly algorithms: ReadonlyMap<string, PluginAlgorithm>;
}

const BUILT_IN_ALGORITHMS: readonly string[] = ["ppo", "weave"];

/** Loads plugins in their order. Rejects with an AppError `invalid_value` that names the plugin. */
export async function loadPlugins(
  entries: readonly PluginEntry[],
  log: Log,
): Promise<LoadedPlugins> {
  const environments = new Map(ENVIRONMENTS);
  const algorithms = new Map<string, PluginAlgorithm>();
  const host = {
    kind: "trainer",
    toolkit: PLUGIN_TOOLKIT,
    builtInAlgorithms: BUILT_IN_ALGORITHMS,
    log: (message: string) => log.info({}, message),
  } as const;
  for (const entry of entries) {
    try {
      const { registry } = await loadPlugin(entry, host);
      addTo(environments, "environment", registry.environments);
      addTo(algorithms, "algorithm", registry.algorithms);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `the plugin ${entry.from} cannot be used: ${why}`;
      throw new AppError("invalid_value", message, { cause });
    }
  }
  return { environments, algorithms };
}

function addTo<Item>(all: Map<string, Item>, kind: string, added: ReadonlyMap<string, Item>): void {
  for (const [name, item] of added) {
    if (all.has(name)) throw taken(kind, name);
    all.set(name, item);
  }
}

function taken(kind: string, name: string): Error {
  return new Error(`there is an ${kind} ${name} already`);
}
