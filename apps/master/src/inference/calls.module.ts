import { type BeforeApplicationShutdown, Global, Inject, Module } from "@nestjs/common";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { InFlight } from "./in-flight.ts";

/** The running calls. */
@Global()
@Module({
  providers: [
    {
      provide: InFlight,
      inject: [MASTER_CONFIG],
      useFactory: (config: MasterConfig) => new InFlight(config),
    },
  ],
  exports: [InFlight],
})
export class CallsModule implements BeforeApplicationShutdown {
  readonly #inFlight: InFlight;
  readonly #config: Pick<MasterConfig, "drainMs">;

  constructor(
    @Inject(InFlight) inFlight: InFlight,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "drainMs">,
  ) {
    this.#inFlight = inFlight;
    this.#config = config;
  }

  /** The drain, while the HTTP server still serves. */
  beforeApplicationShutdown(): Promise<void> {
    return this.#inFlight.close(this.#config.drainMs);
  }
}
