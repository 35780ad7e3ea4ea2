import type { UpstreamCommand } from "@heddle/engines/upstream/upstream-process";
import { engineCommand } from "@heddle/plugin-kit/host/engine-command";
import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";

/** The engines of plugins, as commands that models may name as `PLUGIN.ENGINE`. */
export function pluginEngines({ loaded }: PluginSet): ReadonlyMap<string, UpstreamCommand> {
  return new Map(
    loaded.flatMap(({ name, entry, description }) =>
      (description?.engines ?? []).map((engine) => {
        return [`${name}.${engine}`, engineCommand({ entry, engine })] as const;
      }),
    ),
  );
}
