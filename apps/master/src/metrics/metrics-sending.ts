import type { Logger } from "@heddle/observability/logger";
import { OtlpMetrics } from "@heddle/observability/otlp-metrics";
import { Inject, Injectable, type OnModuleDestroy } from "@nestjs/common";
import { Registry } from "prom-client";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";

/** Sends this master's metrics where its settings name a receiver. */
@Injectable()
export class MetricsSending implements OnModuleDestroy {
  readonly #sender: OtlpMetrics | undefined;

  constructor(
    @Inject(Registry) registry: Registry,
    @Inject(MASTER_CONFIG) { otlpMetrics }: MasterConfig,
    @Inject(LOGGER) log: Logger,
  ) {
    this.#sender = otlpMetrics && new OtlpMetrics(otlpMetrics, registry, log);
  }

  async onModuleDestroy(): Promise<void> {
    await this.#sender?.close();
  }
}
