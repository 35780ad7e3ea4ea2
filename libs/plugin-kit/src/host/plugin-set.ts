import type { Log } from "@heddle/observability/logger";
import { type HostedEntry, readPluginSetting } from "../loading/plugin-list.ts";
import { HostedPlugin, type PluginStatus, type PluginUser } from "./hosted-plugin.ts";

/** Plugins that load at once. */
const LOADS = 4;

/** All plugins of one process. None of them keeps the process from its start. */
export class PluginSet {
  static readonly EMPTY = new PluginSet([], []);
  readonly #plugins: readonly HostedPlugin[];
  readonly #unreadable: readonly PluginStatus[];

  private constructor(plugins: readonly HostedPlugin[], unreadable: readonly PluginStatus[]) {
    this.#plugins = plugins;
    this.#unreadable = unreadable;
  }

  /** Loads what the setting names; relative paths are of the folder. */
  static async start(
    names: readonly string[],
    folder: string,
    log: Log,
    kind: PluginUser = "master",
  ): Promise<PluginSet> {
    const { entries, unreadable } = readPluginSetting(names, folder);
    const plugins: HostedPlugin[] = [];
    for (let at = 0; at < entries.length; at += LOADS) {
      const some = entries.slice(at, at + LOADS);
      const start = (entry: HostedEntry) => HostedPlugin.start(entry, log, { kind });
      plugins.push(...(await Promise.all(some.map(start))));
    }
    refuseRepeated(plugins);
    for (const { from, reason } of unreadable) {
      log.error({ plugin: from, reason }, "a list of plugins cannot be read");
    }
    return new PluginSet(plugins, unreadable.map(unreadableStatus));
  }

  /** The plugins that may serve, in their order. */
  get usable(): readonly HostedPlugin[] {
    return this.#plugins.filter(({ state }) => state === "ready" || state === "restarting");
  }

  /** The plugins that are not refused, whether or not they run in this process. */
  get loaded(): readonly HostedPlugin[] {
    return this.#plugins.filter(({ state }) => state !== "refused");
  }

  statuses(): readonly PluginStatus[] {
    return [...this.#plugins.map((plugin) => plugin.status()), ...this.#unreadable];
  }

  close(): void {
    for (const plugin of this.#plugins) plugin.close();
  }
}

/** The routes of two plugins of one name would be the same. */
function refuseRepeated(plugins: readonly HostedPlugin[]): void {
  const names = new Map<string, HostedEntry>();
  for (const plugin of plugins) {
    if (!plugin.description) continue;
    const other = names.get(plugin.name);
    if (other)
      plugin.refuse(`${other.from} has its name ${plugin.name} already: leave one of them out`);
    else names.set(plugin.name, plugin.entry);
  }
}

function unreadableStatus({
  from,
  reason,
}: {
  readonly from: string;
  readonly reason: string;
}): PluginStatus {
  return {
    from,
    state: "refused",
    reason,
    isolation: "process",
    description: undefined,
    calls: 0,
    restarts: 0,
    faults: { threw: 0, late: 0, blocked: 0, exited: 0, memory: 0 },
    memoryBytes: 0,
  };
}
