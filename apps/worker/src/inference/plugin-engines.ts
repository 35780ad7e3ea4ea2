import type { UpstreamCommand } from "@heddle/engines/upstream/upstream-process";
import type { Log } from "@heddle/observability/logger";
import { engineCommand } from "@heddle/plugin-kit/host/engine-command";
import { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import type { HostedEntry } from "@heddle/plugin-kit/loading/plugin-list";

/** The engines of plugins, as commands that models may name as `PLUGIN.ENGINE`. */
export async function pluginEngines(
  entries: readonly HostedEntry[],
  log: Log,
): Promise<ReadonlyMap<string, UpstreamCommand>> {
  const found = await Promise.all(entries.map((entry) => enginesOf(entry, log)));
  return new Map(found.flat());
}

/** A plugin that is refused is logged, and has none. */
async function enginesOf(entry: HostedEntry, log: Log): Promise<[string, UpstreamCommand][]> {
  const plugin = await HostedPlugin.start(entry, log);
  const { name, engines } = plugin.description ?? { name: "", engines: [] };
  plugin.close();
  return engines.map((engine) => [`${name}.${engine}`, engineCommand({ entry, engine })]);
}
