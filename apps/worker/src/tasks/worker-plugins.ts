import type { Log } from "@heddle/observability/logger";
import { type HostedEntry, readPluginSetting } from "@heddle/plugin-kit/loading/plugin-list";
import { codeFolders } from "@heddle/plugin-kit/loading/plugin-source";
import type { WorkerOptions } from "../config/worker-options.ts";

/** The plugins of this worker. A list that cannot be read is logged. */
export function pluginsOf(
  { plugins = [] }: Pick<WorkerOptions, "plugins">,
  log?: Log,
): readonly HostedEntry[] {
  const { entries, unreadable } = readPluginSetting(plugins, process.cwd());
  for (const { from, reason } of unreadable) {
    log?.error({ plugin: from, reason }, "a list of plugins cannot be read");
  }
  return entries;
}

/** The folders with their code, which tasks read; a missing plugin has none. */
export function pluginFolders(options: WorkerOptions): string[] {
  return pluginsOf(options).flatMap((entry) => {
    try {
      return codeFolders(entry);
    } catch {
      return [];
    }
  });
}
