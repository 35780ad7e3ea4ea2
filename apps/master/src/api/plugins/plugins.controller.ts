import { AppError } from "@heddle/base/errors";
import { PLUGIN_ROUTES } from "@heddle/contracts/api/operations";
import { type PluginView, pluginOperations } from "@heddle/contracts/api/plugins/plugins";
import type { PluginStatus } from "@heddle/plugin-kit/host/hosted-plugin";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Controller, Inject, Param } from "@nestjs/common";
import { Serves } from "../../http/serves.ts";

@Controller()
export class PluginsController {
  readonly #plugins: PluginSet;

  constructor(@Inject(PluginSet) plugins: PluginSet) {
    this.#plugins = plugins;
  }

  @Serves(pluginOperations.list)
  list() {
    return { object: "list" as const, data: this.#plugins.statuses().map(viewPlugin) };
  }

  @Serves(pluginOperations.get)
  get(@Param("name") name: string): PluginView {
    const found = this.#plugins
      .statuses()
      .map(viewPlugin)
      .find(({ id }) => id === name);
    if (found) return found;
    const message = `This master has no plugin ${name}. GET /api/v1/plugins lists what it has.`;
    throw new AppError("not_found", message);
  }
}

function viewPlugin(status: PluginStatus): PluginView {
  const { from, state, reason = null, isolation, description, memoryBytes } = status;
  const { calls, restarts, faults } = status;
  const { name = from, version = null, digest = null, config = null } = description ?? {};
  const { routes = [], admission = [], filters = [], scores = [] } = description ?? {};
  return {
    object: "plugin",
    id: name,
    from,
    version,
    digest,
    state,
    reason,
    isolation,
    capabilities: description?.capabilities ?? [],
    routes: routes.map(({ method, path, permission, summary }) => {
      return { method, path: `${PLUGIN_ROUTES}/${name}${path}`, permission, summary };
    }),
    admission: admission.map((rule) => rule.name),
    scheduler: [...filters, ...scores],
    event_sinks: (description?.sinks ?? []).map((sink) => sink.name),
    algorithms: description?.algorithms ?? [],
    environments: description?.environments ?? [],
    commands: description?.commands ?? [],
    blocks: (description?.blocks ?? []).map((block) => block.name),
    engines: description?.engines ?? [],
    executors: description?.executors ?? [],
    panels: description?.panels ?? [],
    config_schema: config,
    calls,
    restarts,
    faults,
    memory_bytes: memoryBytes,
  };
}
