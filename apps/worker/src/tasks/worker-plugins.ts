import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { type HostedEntry, readPluginSetting } from "@heddle/plugin-kit/loading/plugin-list";
import { codeFolders } from "@heddle/plugin-kit/loading/plugin-source";
import type { WorkerOptions } from "../config/worker-options.ts";

/** The plugins for trainers. One that did not start here would keep them from their start too. */
export function trainingPlugins({ loaded }: PluginSet): readonly HostedEntry[] {
  return loaded.flatMap(({ entry, description }) => {
    const adds = description?.capabilities ?? [];
    return adds.includes("algorithms") || adds.includes("environments") ? [entry] : [];
  });
}

/** The folders with the code of this worker's plugins, which tasks read; a missing one has none. */
export function pluginFolders({ plugins = [] }: WorkerOptions): string[] {
  return readPluginSetting(plugins, process.cwd()).entries.flatMap((entry) => {
    try {
      return codeFolders(entry);
    } catch {
      return [];
    }
  });
}
