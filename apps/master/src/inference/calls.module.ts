import { join } from "node:path";
import type { Logger } from "@heddle/observability/logger";
import { type BeforeApplicationShutdown, Global, Inject, Module } from "@nestjs/common";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { InFlight } from "./in-flight.ts";
import { UsageLedger } from "./usage-ledger.ts";

/** The running calls and the ledger of their usage, which closes after the last call has ended. */
@Global()
@Module({
  providers: [
    {
      provide: InFlight,
      inject: [MASTER_CONFIG],
      useFactory: ({ maxCalls, maxReadingBytes }: MasterConfig) =>
        new InFlight(maxCalls, maxReadingBytes),
    },
    {
      provide: UsageLedger,
      inject: [MASTER_CONFIG, LOGGER],
      useFactory: ({ dataDirectory }: MasterConfig, logger: Logger) =>
        new UsageLedger(join(dataDirectory, "usage"), logger),
    },
  ],
  exports: [InFlight, UsageLedger],
})
export class CallsModule implements BeforeApplicationShutdown {
  readonly #inFlight: InFlight;
  readonly #drainMs: number;

  constructor(
    @Inject(InFlight) inFlight: InFlight,
    @Inject(MASTER_CONFIG) { drainMs }: Pick<MasterConfig, "drainMs">,
  ) {
    this.#inFlight = inFlight;
    this.#drainMs = drainMs;
  }

  /** The drain, while the HTTP server still serves. */
  beforeApplicationShutdown(): Promise<void> {
    return this.#inFlight.close(this.#drainMs);
  }
}
