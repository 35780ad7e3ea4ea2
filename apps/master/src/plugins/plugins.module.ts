import { join } from "node:path";
import type { Logger } from "@heddle/observability/logger";
import { ReadMetric } from "@heddle/observability/read-metric";
import { exposePluginMetrics } from "@heddle/plugin-kit/host/plugin-metrics";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import {
  Global,
  Inject,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from "@nestjs/common";
import { Registry } from "prom-client";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { type DeliveryOptions, EventDelivery } from "./event-delivery.ts";

function deliveriesOf(
  plugins: PluginSet,
  { folder, ...shared }: Pick<DeliveryOptions, "store" | "log"> & { readonly folder: string },
): EventDelivery[] {
  return plugins.usable.flatMap((plugin) =>
    (plugin.description?.sinks ?? []).map((sink) => {
      const file = join(folder, `${plugin.name}.${sink.name}.position`);
      return new EventDelivery({ ...shared, plugin, sink, file });
    }),
  );
}

function exposeLag(registry: Registry, deliveries: readonly EventDelivery[]): void {
  const lag = {
    name: "heddle_plugin_sink_lag",
    type: "gauge",
    help: "Events that a sink lacks.",
  } as const;
  new ReadMetric(registry, lag, () =>
    deliveries.map(({ plugin, sink, lag: value }) => ({ labels: { plugin, sink }, value })),
  );
}

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
export class PluginsModule implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #plugins: PluginSet;
  readonly #deliveries: readonly EventDelivery[];

  constructor(
    @Inject(PluginSet) plugins: PluginSet,
    @Inject(Registry) registry: Registry,
    @Inject(CONTROL_PLANE) { events }: ControlPlane,
    @Inject(MASTER_CONFIG) { dataDirectory }: MasterConfig,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#plugins = plugins;
    const folder = join(dataDirectory, "plugins");
    this.#deliveries = events ? deliveriesOf(plugins, { store: events.store, folder, log }) : [];
    exposePluginMetrics(registry, plugins);
    exposeLag(registry, this.#deliveries);
  }

  onApplicationBootstrap(): void {
    for (const delivery of this.#deliveries) delivery.start();
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all(this.#deliveries.map((delivery) => delivery.close()));
    this.#plugins.close();
  }
}
