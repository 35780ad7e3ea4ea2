import type { Logger } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Global, Inject, Module, type OnApplicationShutdown } from "@nestjs/common";
import { Registry } from "prom-client";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { exposePluginMetrics } from "./plugin-metrics.ts";

/** The plugins of this master: loaded before all that they add to, and ended after it. */
@Global()
@Module({
  providers: [
    {
      provide: PluginSet,
      inject: [MASTER_CONFIG, LOGGER],
      useFactory: ({ plugins }: MasterConfig, log: Logger) =>
        PluginSet.start(plugins, process.cwd(), log),
    },
  ],
  exports: [PluginSet],
})
export class PluginsModule implements OnApplicationShutdown {
  readonly #plugins: PluginSet;

  constructor(@Inject(PluginSet) plugins: PluginSet, @Inject(Registry) registry: Registry) {
    this.#plugins = plugins;
    exposePluginMetrics(registry, plugins);
  }

  onApplicationShutdown(): void {
    this.#plugins.close();
  }
}
