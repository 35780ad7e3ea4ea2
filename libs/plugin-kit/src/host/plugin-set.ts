import type { Log } from "@heddle/observability/logger";
import { type HostedEntry, readPluginSetting } from "../loading/plugin-list.ts";
import { HostedPlugin, type PluginStatus, type PluginUser } from "./hosted-plugin.ts";

/** Plugins that load at once. */
const LOADS = 4;
/** After this time no further plugin is loaded, so that hanging ones do not block the start. */
const START_MS = 15_000;

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
    const untilMs = performance.now() + START_MS;
    const waiting = [...entries.entries()];
    const load = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const [at, entry] = next;
        plugins[at] =
          performance.now() < untilMs
            ? await HostedPlugin.start(entry, log, { kind })
            : HostedPlugin.refused(entry, log, OTHERS_HANG);
      }
    };
    await Promise.all(Array.from({ length: LOADS }, load));
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

  /** Starts those that never were, as a worker does that runs no task without them. */
  async startRefused(): Promise<void> {
    const refused = this.#plugins.filter(({ state, description }) => {
      return state === "refused" && description === undefined;
    });
    for (const plugin of refused) await plugin.startAgain();
    refuseRepeated(this.#plugins);
  }

  statuses(): readonly PluginStatus[] {
    return [...this.#plugins.map((plugin) => plugin.status()), ...this.#unreadable];
  }

  close(): void {
    for (const plugin of this.#plugins) plugin.close();
  }
}

const OTHERS_HANG = `it was not started: plugins before it took ${START_MS / 1_000} s`;

/** The routes of two plugins of one name would be the same. */
function refuseRepeated(plugins: readonly HostedPlugin[]): void {
  const names = new Map<string, HostedEntry>();
  for (const plugin of plugins) {
    if (!plugin.description || plugin.state === "refused") continue;
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
