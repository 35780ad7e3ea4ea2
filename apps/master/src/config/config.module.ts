import type { Logger } from "@heddle/observability/logger";
import { createRegistry } from "@heddle/observability/registry";
import type { DynamicModule } from "@nestjs/common";
import { Registry } from "prom-client";
import type { MasterConfig } from "./config.ts";

/** The injection token of the MasterConfig. */
export const MASTER_CONFIG = Symbol("MasterConfig");
/** The injection token of the process's Logger. */
export const LOGGER = Symbol("Logger");

class ConfigModule {}

/** The process's settings, logger and registry of metrics, for all other modules. */
export function configModule(config: MasterConfig, logger: Logger): DynamicModule {
  const providers = [
    { provide: MASTER_CONFIG, useValue: config },
    { provide: LOGGER, useValue: logger },
    { provide: Registry, useFactory: () => createRegistry("master") },
  ];
  return { module: ConfigModule, global: true, providers, exports: providers };
}
